-- Alerts: one per asset and cause, made of findings, moved by people. Every step of an alert is written by the table's own
-- trigger, together with its message for the topic, the deliveries that it causes and the labels that it leaves, so that
-- no path can forget one of them and nothing leaves without its row.

-- What is at stake with an asset; without a row: normal, and cost moves nothing.
CREATE TABLE asset_care (
    asset_id              integer PRIMARY KEY REFERENCES assets,
    tenant_id             integer NOT NULL REFERENCES tenants,
    criticality           smallint NOT NULL DEFAULT 1 CHECK (criticality BETWEEN 0 AND 2),
    downtime_cost_per_day double precision CHECK (downtime_cost_per_day >= 0),
    visit_cost            double precision CHECK (visit_cost >= 0),
    currency              text NOT NULL DEFAULT '' CHECK (length(currency) <= 3),
    changed_at            timestamptz NOT NULL DEFAULT now(),
    changed_by            text NOT NULL
);

CREATE TABLE alert_rows (
    alert_id         text PRIMARY KEY CHECK (alert_id ~ '^a-[0-9a-f]{16}$'),
    tenant_id        integer NOT NULL REFERENCES tenants,
    asset_id         integer REFERENCES assets,
    device_key       integer NOT NULL REFERENCES devices,  -- of its first finding; the key of its messages
    cause            text NOT NULL,
    subject          text NOT NULL,           -- asset (or device without one) and cause: what there is one alert of
    state            text NOT NULL CHECK (state IN ('new', 'acknowledged', 'assigned', 'in_progress', 'resolved',
                         'reopened', 'suppressed', 'retracted')),
    resolution       text CHECK (resolution IN ('true', 'false', 'unclear')),
    assignee         text,
    severity         smallint NOT NULL CHECK (severity BETWEEN 1 AND 4),
    told_severity    smallint NOT NULL,       -- the worst that a detector said, before criticality and cost
    sureness         double precision NOT NULL,  -- how often its detector was right when it was last graded
    detector         text NOT NULL,           -- of its strongest finding
    finding_id       text NOT NULL,           -- the strongest; no reference: a finding may go, its alert stays
    since            timestamptz NOT NULL,    -- event time of the earliest finding that holds
    last_seen_at     timestamptz NOT NULL,
    running          boolean NOT NULL,        -- an excursion of it is not over
    findings         integer NOT NULL,
    holding          integer NOT NULL,
    revision         integer NOT NULL DEFAULT 0,  -- how often late data took back what had been said
    root_id          text REFERENCES alert_rows,
    level            smallint NOT NULL DEFAULT 0,
    escalate_at      timestamptz,
    suppressed_until timestamptz,
    opened_at        timestamptz NOT NULL,
    resolved_at      timestamptz,             -- when it was resolved or retracted
    event_no         integer NOT NULL DEFAULT 1,
    changed_at       timestamptz NOT NULL,
    changed_by       text NOT NULL,
    change_kind      text NOT NULL,
    change_note      text NOT NULL DEFAULT '',
    CHECK ((state = 'resolved') = (resolution IS NOT NULL)),
    CHECK (root_id <> alert_id)
);
CREATE UNIQUE INDEX alert_rows_open ON alert_rows (tenant_id, subject) WHERE state NOT IN ('resolved', 'retracted');
CREATE INDEX alert_rows_subject ON alert_rows (tenant_id, subject, opened_at DESC);
CREATE INDEX alert_rows_list ON alert_rows (tenant_id, opened_at DESC, alert_id DESC);
CREATE INDEX alert_rows_root ON alert_rows (root_id) WHERE root_id IS NOT NULL;
CREATE INDEX alert_rows_escalate ON alert_rows (escalate_at) WHERE escalate_at IS NOT NULL;
CREATE INDEX alert_rows_suppressed ON alert_rows (suppressed_until) WHERE suppressed_until IS NOT NULL;

-- Which findings an alert is made of, and what each of them said when it was last taken.
CREATE TABLE alert_findings (
    finding_id   text PRIMARY KEY,
    alert_id     text NOT NULL REFERENCES alert_rows,
    tenant_id    integer NOT NULL REFERENCES tenants,
    detector     text NOT NULL,
    severity     smallint NOT NULL,
    since        timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    closed       boolean NOT NULL,
    lost         boolean NOT NULL,
    holds        boolean NOT NULL DEFAULT true,
    amendments   integer NOT NULL DEFAULT 0,
    score        double precision NOT NULL
);
CREATE INDEX alert_findings_alert ON alert_findings (alert_id);

-- The audit: one row per step, written by the trigger below, never changed.
CREATE TABLE alert_events (
    alert_id   text NOT NULL REFERENCES alert_rows,
    event_no   integer NOT NULL,
    tenant_id  integer NOT NULL,
    kind       text NOT NULL,
    at         timestamptz NOT NULL,
    by_whom    text NOT NULL,
    from_state text,
    to_state   text NOT NULL,
    severity   smallint NOT NULL,
    resolution text,
    assignee   text,
    root_id    text,
    note       text NOT NULL,
    PRIMARY KEY (alert_id, event_no)
);
CREATE TRIGGER alert_events_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON alert_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- What people found, by finding: for the precision of detectors and for training.
CREATE TABLE alert_labels (
    finding_id  text PRIMARY KEY,
    alert_id    text NOT NULL REFERENCES alert_rows,
    tenant_id   integer NOT NULL,
    detector    text NOT NULL,
    resolution  text NOT NULL CHECK (resolution IN ('true', 'false', 'unclear')),
    labelled_at timestamptz NOT NULL,
    labelled_by text NOT NULL
);
CREATE INDEX alert_labels_alert ON alert_labels (alert_id);

-- Findings that alerts have not taken yet, or not as they are now. Written with the findings, worked by the warden.
CREATE TABLE alert_due (
    finding_id text PRIMARY KEY,
    tenant_id  integer NOT NULL,
    noted_at   timestamptz NOT NULL DEFAULT now()
);
INSERT INTO alert_due (finding_id, tenant_id) SELECT finding_id, tenant_id FROM finding_rows;

CREATE FUNCTION note_finding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO alert_due (finding_id, tenant_id) SELECT finding_id, tenant_id FROM changed ORDER BY finding_id
    ON CONFLICT (finding_id) DO UPDATE SET noted_at = excluded.noted_at;
    RETURN NULL;
END $$;
CREATE TRIGGER finding_rows_new AFTER INSERT ON finding_rows REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION note_finding();
CREATE TRIGGER finding_rows_changed AFTER UPDATE ON finding_rows REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION note_finding();
CREATE TRIGGER finding_rows_gone AFTER DELETE ON finding_rows REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION note_finding();

-- Where messages about alerts go. The secret is read by the sink's role alone.
CREATE TABLE alert_channels (
    channel_id    text PRIMARY KEY CHECK (channel_id ~ '^n-[0-9a-f]{16}$'),
    tenant_id     integer NOT NULL REFERENCES tenants,
    name          text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    kind          text NOT NULL CHECK (kind IN ('webhook', 'email', 'device')),
    target        text NOT NULL DEFAULT '' CHECK (length(target) <= 2000),
    secret        text,
    min_severity  smallint NOT NULL DEFAULT 2 CHECK (min_severity BETWEEN 1 AND 4),
    quiet_begin   time,
    quiet_end     time,
    zone          text NOT NULL DEFAULT 'UTC',
    quiet_through smallint NOT NULL DEFAULT 4 CHECK (quiet_through BETWEEN 1 AND 4),
    enabled       boolean NOT NULL DEFAULT true,
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    text NOT NULL,
    UNIQUE (tenant_id, name),
    CHECK ((quiet_begin IS NULL) = (quiet_end IS NULL)),
    CHECK ((kind = 'webhook') = (secret IS NOT NULL))
);

CREATE TABLE alert_deliveries (
    delivery_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id       integer NOT NULL,
    channel_id      text NOT NULL REFERENCES alert_channels ON DELETE CASCADE,
    alert_id        text NOT NULL,
    event_no        integer NOT NULL,
    severity        smallint NOT NULL,
    state           text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'dead')),
    attempts        integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    last_error      text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    UNIQUE (channel_id, alert_id, event_no),
    FOREIGN KEY (alert_id, event_no) REFERENCES alert_events
);
CREATE INDEX alert_deliveries_due ON alert_deliveries (next_attempt_at) WHERE state = 'waiting';
CREATE INDEX alert_deliveries_ended ON alert_deliveries (ended_at) WHERE ended_at IS NOT NULL;

-- A step has the next number; nothing that people see of an alert changes without one.
CREATE FUNCTION check_alert_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.event_no <> OLD.event_no THEN
        IF NEW.event_no <> OLD.event_no + 1 THEN
            RAISE EXCEPTION 'step % of alert % follows %', NEW.event_no, NEW.alert_id, OLD.event_no
                USING ERRCODE = 'check_violation';
        END IF;
    ELSIF (NEW.state, NEW.resolution, NEW.assignee, NEW.severity, NEW.root_id, NEW.level, NEW.tenant_id, NEW.subject)
        IS DISTINCT FROM
        (OLD.state, OLD.resolution, OLD.assignee, OLD.severity, OLD.root_id, OLD.level, OLD.tenant_id, OLD.subject) THEN
        RAISE EXCEPTION 'alert % was changed without a step', NEW.alert_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER alert_rows_step BEFORE UPDATE ON alert_rows FOR EACH ROW EXECUTE FUNCTION check_alert_step();

CREATE FUNCTION tell_alert_step() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before text := CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END;
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.event_no = OLD.event_no THEN
        RETURN NULL;
    END IF;
    INSERT INTO alert_events (alert_id, event_no, tenant_id, kind, at, by_whom, from_state, to_state, severity, resolution,
        assignee, root_id, note)
    VALUES (NEW.alert_id, NEW.event_no, NEW.tenant_id, NEW.change_kind, NEW.changed_at, NEW.changed_by, before, NEW.state,
        NEW.severity, NEW.resolution, NEW.assignee, NEW.root_id, NEW.change_note);
    INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
    SELECT NEW.tenant_id, 'alerts', d.device, convert_to(json_build_object(
        'v', 1, 'alert_id', NEW.alert_id, 'event_no', NEW.event_no, 'kind', NEW.change_kind,
        'at_ms', ms_of(NEW.changed_at), 'by', NEW.changed_by, 'note', NEW.change_note, 'device', d.device,
        'asset', a.name, 'cause', NEW.cause, 'detector', NEW.detector, 'severity', NEW.severity, 'from_state', before,
        'to_state', NEW.state, 'resolution', NEW.resolution, 'assignee', NEW.assignee, 'root', NEW.root_id,
        'since_ms', ms_of(NEW.since), 'last_seen_ms', ms_of(NEW.last_seen_at), 'findings', NEW.findings,
        'revision', NEW.revision)::text, 'UTF8')
    FROM devices d LEFT JOIN assets a ON a.asset_id = NEW.asset_id WHERE d.device_key = NEW.device_key;
    -- what is grouped under a root disturbs nobody; neither do the moves of people, except that one of them reopens
    INSERT INTO alert_deliveries (tenant_id, channel_id, alert_id, event_no, severity, next_attempt_at, created_at)
    SELECT NEW.tenant_id, c.channel_id, NEW.alert_id, NEW.event_no, NEW.severity, NEW.changed_at, NEW.changed_at
    FROM alert_channels c
    WHERE c.tenant_id = NEW.tenant_id AND c.enabled AND NEW.severity >= c.min_severity AND NEW.root_id IS NULL
        AND (NEW.change_kind IN ('opened', 'worsened', 'reopened', 'escalated', 'ungrouped', 'retracted')
             OR (NEW.change_kind = 'moved' AND NEW.state = 'reopened'));
    IF NEW.state = 'resolved' THEN
        INSERT INTO alert_labels (finding_id, alert_id, tenant_id, detector, resolution, labelled_at, labelled_by)
        SELECT f.finding_id, f.alert_id, f.tenant_id, f.detector, NEW.resolution, NEW.changed_at, NEW.changed_by
        FROM alert_findings f WHERE f.alert_id = NEW.alert_id
        ON CONFLICT (finding_id) DO UPDATE SET resolution = excluded.resolution, labelled_at = excluded.labelled_at,
            labelled_by = excluded.labelled_by;
    ELSIF before = 'resolved' THEN
        DELETE FROM alert_labels WHERE alert_id = NEW.alert_id;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION ms_of(moment timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN floor(extract(epoch FROM moment) * 1000)::bigint;
CREATE TRIGGER alert_rows_told AFTER INSERT OR UPDATE ON alert_rows FOR EACH ROW EXECUTE FUNCTION tell_alert_step();

CREATE VIEW alerts WITH (security_invoker = true) AS
SELECT r.alert_id, a.name AS asset, r.cause, r.state, r.resolution, r.severity, r.assignee, r.since, r.last_seen_at,
       r.running, r.findings, r.detector, r.root_id AS root, r.level, r.revision, r.opened_at, r.resolved_at, r.changed_at,
       r.changed_by, r.change_kind, r.event_no, r.suppressed_until, r.escalate_at, r.told_severity, r.sureness,
       r.finding_id, d.device, t.name AS tenant,
       (SELECT count(*) FROM alert_rows c WHERE c.root_id = r.alert_id) AS grouped
FROM alert_rows r
JOIN devices d ON d.device_key = r.device_key
JOIN tenants t ON t.tenant_id = r.tenant_id
LEFT JOIN assets a ON a.asset_id = r.asset_id;

-- How often each detector was right, by the month in which the alert was opened (UTC), as people resolved its alerts.
-- low and high: Wilson's interval of 95 %. What was retracted was never judged.
CREATE VIEW alert_precision WITH (security_invoker = true) AS
SELECT j.tenant, j.detector, j.month, j.alerts, j.confirmed, j.wrong, j.unclear, j.unresolved,
       j.confirmed::double precision / nullif(j.n, 0) AS precision,
       (j.p + 1.9207 / j.n - 1.96 * sqrt((j.p * (1 - j.p) + 0.9604 / j.n) / j.n)) / (1 + 3.8416 / j.n) AS low,
       (j.p + 1.9207 / j.n + 1.96 * sqrt((j.p * (1 - j.p) + 0.9604 / j.n) / j.n)) / (1 + 3.8416 / j.n) AS high
FROM (SELECT c.*, nullif(c.confirmed + c.wrong, 0)::double precision AS n,
             c.confirmed::double precision / nullif(c.confirmed + c.wrong, 0) AS p
      FROM (SELECT t.name AS tenant, x.detector, date_trunc('month', r.opened_at, 'UTC') AS month, count(*) AS alerts,
                   count(*) FILTER (WHERE r.resolution = 'true') AS confirmed,
                   count(*) FILTER (WHERE r.resolution = 'false') AS wrong,
                   count(*) FILTER (WHERE r.resolution = 'unclear') AS unclear,
                   count(*) FILTER (WHERE r.resolution IS NULL) AS unresolved
            FROM (SELECT DISTINCT alert_id, detector FROM alert_findings) x
            JOIN alert_rows r ON r.alert_id = x.alert_id AND r.state <> 'retracted'
            JOIN tenants t ON t.tenant_id = r.tenant_id
            GROUP BY 1, 2, 3) c) j;

CREATE VIEW deliveries WITH (security_invoker = true) AS
SELECT c.name AS channel, c.kind, v.alert_id, v.event_no, v.state, v.attempts, v.next_attempt_at, v.last_error, v.created_at,
       v.ended_at, t.name AS tenant, v.delivery_id
FROM alert_deliveries v JOIN alert_channels c USING (channel_id) JOIN tenants t ON t.tenant_id = v.tenant_id;

DO $$
DECLARE
    s text := quote_ident(current_schema());
    t text;
    shown text := 'channel_id, tenant_id, name, kind, min_severity, quiet_begin, quiet_end, zone, quiet_through, enabled, '
        'created_at, created_by';
BEGIN
    FOREACH t IN ARRAY ARRAY['asset_care', 'alert_rows', 'alert_findings', 'alert_events', 'alert_labels', 'alert_due',
        'alert_channels', 'alert_deliveries']
    LOOP
        EXECUTE format('ALTER TABLE %s.%I ENABLE ROW LEVEL SECURITY', s, t);
        EXECUTE format('CREATE POLICY own_tenant ON %s.%I USING (tenant_id = (SELECT own_tenant_id()))', s, t);
        EXECUTE format('CREATE POLICY all_tenants ON %s.%I FOR SELECT TO fleetstream_reader USING (true)', s, t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s.%I TO fleetstream_sink', s, t);
    END LOOP;
    EXECUTE format('REVOKE UPDATE, DELETE ON %s.alert_events FROM fleetstream_sink', s);
    FOREACH t IN ARRAY ARRAY['asset_care', 'alert_rows', 'alert_findings', 'alert_events', 'alert_labels', 'alerts',
        'alert_precision']
    LOOP
        EXECUTE format('GRANT SELECT ON %s.%I TO fleetstream_sink, fleetstream_api, fleetstream_reader, fleetstream_tenant',
            s, t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['alert_deliveries', 'deliveries'] LOOP
        EXECUTE format('GRANT SELECT ON %s.%I TO fleetstream_sink, fleetstream_api, fleetstream_reader', s, t);
    END LOOP;
    EXECUTE format('GRANT SELECT (%s) ON %s.alert_channels TO fleetstream_reader', shown, s);
    EXECUTE format('GRANT SELECT (%s, target), INSERT, DELETE ON %s.alert_channels TO fleetstream_api', shown, s);
    EXECUTE format('GRANT UPDATE (enabled) ON %s.alert_channels TO fleetstream_api', s);
    EXECUTE format('GRANT INSERT, UPDATE ON %s.asset_care TO fleetstream_api', s);
    EXECUTE format('GRANT UPDATE ON %s.alert_rows TO fleetstream_api', s);
    EXECUTE format('GRANT INSERT ON %s.alert_events, %s.alert_deliveries TO fleetstream_api', s, s);
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON %s.alert_labels TO fleetstream_api', s);
    EXECUTE format('GRANT USAGE ON SEQUENCE %s.alert_deliveries_delivery_id_seq TO fleetstream_api', s);
END $$;
