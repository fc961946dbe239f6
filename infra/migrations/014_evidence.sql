-- Crash records as evidence. What was taken in is never changed or deleted (triggers refuse it, rights do not give it);
-- two hash-chained logs per tenant (taken in: evidence_log; read: evidence_custody) end in daily roots. The API's role
-- sees no row of a record unless its transaction names a custody entry that was committed before and allows just that.

CREATE TABLE evidence_heads (
    tenant_id   integer NOT NULL REFERENCES tenants,
    ledger      text NOT NULL CHECK (ledger IN ('evidence', 'custody')),
    last_no     bigint NOT NULL DEFAULT 0,
    last_at_ms  bigint NOT NULL DEFAULT 0,
    last_sha256 bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (length(last_sha256) = 32),
    PRIMARY KEY (tenant_id, ledger)
);

CREATE TABLE evidence_log (
    tenant_id       integer NOT NULL REFERENCES tenants,
    entry_no        bigint NOT NULL,
    at_ms           bigint NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('record', 'notice', 'linkage', 'attachment', 'aside')),
    subject         text NOT NULL,
    content_sha256  bytea NOT NULL CHECK (length(content_sha256) = 32),
    previous_sha256 bytea NOT NULL CHECK (length(previous_sha256) = 32),
    sha256          bytea NOT NULL CHECK (length(sha256) = 32),
    PRIMARY KEY (tenant_id, entry_no)
);
CREATE INDEX evidence_log_subject ON evidence_log (tenant_id, subject);

-- The checks repeat the floor of contracts/edr/custody.py: whoever writes an entry by another way cannot allow more.
CREATE TABLE evidence_custody (
    tenant_id       integer NOT NULL REFERENCES tenants,
    entry_no        bigint NOT NULL,
    at_ms           bigint NOT NULL,
    actor           text NOT NULL,
    key_id          text NOT NULL,
    role            text NOT NULL,
    action          text NOT NULL,
    subject         text NOT NULL,
    purpose         text NOT NULL,
    basis           text NOT NULL,
    reference       text NOT NULL,
    outcome         text NOT NULL CHECK (outcome IN ('allowed', 'refused')),
    reason          text NOT NULL,
    previous_sha256 bytea NOT NULL CHECK (length(previous_sha256) = 32),
    sha256          bytea NOT NULL CHECK (length(sha256) = 32),
    written_by      xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (tenant_id, entry_no),
    CONSTRAINT known_action CHECK (outcome = 'refused' OR action IN
        ('list', 'notices', 'position', 'custody', 'show', 'report', 'export', 'linkage')),
    CONSTRAINT one_subject CHECK (outcome = 'refused' OR (action IN ('list', 'notices', 'custody')) = (subject = '')),
    CONSTRAINT legal_basis CHECK (outcome = 'refused' OR action IN ('list', 'notices', 'position', 'custody')
        OR (basis IN ('owner_consent', 'court_order', 'investigation', 'emergency', 'research') AND purpose <> ''
            AND (basis = 'emergency' OR reference <> ''))),
    CONSTRAINT insurers CHECK (outcome = 'refused' OR role <> 'insurer'
        OR (action IN ('show', 'report', 'export', 'linkage') AND basis <> 'emergency')),
    CONSTRAINT where_to_look CHECK (outcome = 'refused' OR action <> 'position' OR role IN ('operator', 'admin')),
    CONSTRAINT named_by CHECK (outcome = 'refused' OR action <> 'linkage'
        OR basis IN ('owner_consent', 'court_order', 'emergency'))
);
CREATE INDEX evidence_custody_subject ON evidence_custody (tenant_id, subject);

CREATE TABLE evidence_roots (
    tenant_id       integer NOT NULL REFERENCES tenants,
    ledger          text NOT NULL CHECK (ledger IN ('evidence', 'custody')),
    day             date NOT NULL,
    first_no        bigint NOT NULL,
    last_no         bigint NOT NULL,
    previous_sha256 bytea NOT NULL CHECK (length(previous_sha256) = 32),
    sha256          bytea NOT NULL CHECK (length(sha256) = 32),
    made_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, ledger, day)
);

-- Exactly once by offsets, as for ingest: one row per Kafka topic (by its id) and partition.
CREATE TABLE evidence_offsets (
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    topic           text NOT NULL,
    next_offset     bigint NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic_id, kafka_partition)
);

-- A recorder and a signing key belong to the device that used them first.
CREATE TABLE evidence_owners (
    what       text NOT NULL CHECK (what IN ('recorder', 'key')),
    id         bytea NOT NULL,
    device_key integer NOT NULL REFERENCES devices,
    tenant_id  integer NOT NULL REFERENCES tenants,
    first_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (what, id)
);

-- One row per sealed capsule: what its head and its event say. trust: 'root' (its chain ends in a root we trust) or
-- 'simulated' (a simulated record of a device registered as simulated; worth nothing as evidence).
CREATE TABLE evidence_records (
    sha256          bytea PRIMARY KEY CHECK (length(sha256) = 32),
    tenant_id       integer NOT NULL REFERENCES tenants,
    device_key      integer NOT NULL REFERENCES devices,
    event_id        text NOT NULL,
    recorder_id     bytea NOT NULL,
    record_no       bigint NOT NULL,
    previous_sha256 bytea NOT NULL CHECK (length(previous_sha256) = 32),
    profile         text NOT NULL,
    profile_version integer NOT NULL,
    profile_sha256  bytea NOT NULL,
    schema_version  integer NOT NULL,
    source          text NOT NULL,
    trigger         text NOT NULL,
    complete        boolean NOT NULL,
    locked          boolean NOT NULL,
    event           jsonb NOT NULL,
    key_id          bytea NOT NULL,
    algorithm       text NOT NULL,
    root_sha256     bytea NOT NULL CHECK (length(root_sha256) = 32),
    trust           text NOT NULL CHECK (trust IN ('root', 'simulated')),
    received_at     timestamptz NOT NULL,
    stored_at       timestamptz NOT NULL DEFAULT now(),
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    entry_no        bigint NOT NULL,
    UNIQUE (recorder_id, record_no)
);
CREATE INDEX evidence_records_event ON evidence_records (tenant_id, event_id);
CREATE INDEX evidence_records_received ON evidence_records (tenant_id, received_at DESC);

CREATE TABLE evidence_capsules (
    record_sha256 bytea PRIMARY KEY REFERENCES evidence_records,
    tenant_id     integer NOT NULL REFERENCES tenants,
    capsule       bytea NOT NULL,
    CONSTRAINT original_bytes CHECK (sha256(capsule) = record_sha256)
);

-- Every element of the profile, in its order: recorded, or not available (never zero). steps are integers in units of
-- resolution (states: their index); a step's time is (first + index) * step_us after time zero. NULL in steps: nothing
-- fresh at that instant. saturated_from_ms: from there on the sensor stood at its limit.
CREATE TABLE evidence_elements (
    record_sha256     bytea NOT NULL REFERENCES evidence_records,
    position          smallint NOT NULL,
    tenant_id         integer NOT NULL REFERENCES tenants,
    name              text NOT NULL,
    status            text NOT NULL CHECK (status IN ('recorded', 'not_available')),
    kind              text NOT NULL,
    unit              text NOT NULL,
    resolution        numeric NOT NULL,
    states            text[] NOT NULL,
    steps             bigint[],
    first             bigint,
    step_us           bigint,
    saturated_from_ms bigint,
    clamped           boolean,
    PRIMARY KEY (record_sha256, position),
    CHECK ((status = 'recorded') = (steps IS NOT NULL))
);

CREATE TABLE evidence_notices (
    tenant_id   integer NOT NULL REFERENCES tenants,
    device_key  integer NOT NULL REFERENCES devices,
    event_id    text NOT NULL,
    notice      jsonb NOT NULL,
    received_at timestamptz NOT NULL,
    stored_at   timestamptz NOT NULL DEFAULT now(),
    entry_no    bigint NOT NULL,
    PRIMARY KEY (device_key, event_id)
);
CREATE INDEX evidence_notices_received ON evidence_notices (tenant_id, received_at DESC);

-- Who, where and when: the only table that names anybody. Read through the functions of fleetstream_linkage only.
CREATE TABLE evidence_linkage (
    tenant_id       integer NOT NULL REFERENCES tenants,
    device_key      integer NOT NULL REFERENCES devices,
    event_id        text NOT NULL,
    sha256          bytea NOT NULL CHECK (length(sha256) = 32),
    zero_at_ms      bigint NOT NULL,
    clock_trusted   boolean NOT NULL,
    vin             text,
    driver          text,
    latitude_e7     bigint,
    longitude_e7    bigint,
    position_age_ms bigint,
    received_at     timestamptz NOT NULL,
    entry_no        bigint NOT NULL,
    PRIMARY KEY (device_key, event_id, sha256)
);
CREATE INDEX evidence_linkage_event ON evidence_linkage (tenant_id, event_id);

-- Raw data by claim check: pieces as they came; an attachment is whole when all its pieces are there and hash to its name,
-- and claimed when a stored capsule names it in its signed part.
CREATE TABLE evidence_pieces (
    device_key integer NOT NULL REFERENCES devices,
    event_id   text NOT NULL,
    sha256     bytea NOT NULL CHECK (length(sha256) = 32),
    number     integer NOT NULL,
    tenant_id  integer NOT NULL REFERENCES tenants,
    data       bytea NOT NULL,
    PRIMARY KEY (device_key, event_id, sha256, number)
);
CREATE TABLE evidence_attachments (
    device_key integer NOT NULL REFERENCES devices,
    event_id   text NOT NULL,
    sha256     bytea NOT NULL CHECK (length(sha256) = 32),
    tenant_id  integer NOT NULL REFERENCES tenants,
    name       text NOT NULL,
    size_bytes bigint NOT NULL,
    pieces     integer NOT NULL,
    held_bytes bigint NOT NULL DEFAULT 0,
    state      text NOT NULL DEFAULT 'arriving' CHECK (state IN ('arriving', 'whole')),
    claimed_by bytea REFERENCES evidence_records,
    entry_no   bigint,
    PRIMARY KEY (device_key, event_id, sha256)
);

-- What cannot be believed, with its bytes and the reason; the same bytes for the same reason once.
CREATE TABLE evidence_asides (
    aside_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id       integer REFERENCES tenants,
    device_key      integer REFERENCES devices,
    reason          text NOT NULL,
    detail          text NOT NULL,
    bytes_sha256    bytea NOT NULL CHECK (length(bytes_sha256) = 32),
    bytes           bytea NOT NULL,
    received_at     timestamptz,
    set_aside_at    timestamptz NOT NULL DEFAULT now(),
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    entry_no        bigint,
    UNIQUE NULLS NOT DISTINCT (device_key, bytes_sha256, reason)
);

CREATE FUNCTION evidence_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% holds evidence: its rows are never changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['evidence_log', 'evidence_custody', 'evidence_roots', 'evidence_owners', 'evidence_records',
        'evidence_capsules', 'evidence_elements', 'evidence_notices', 'evidence_linkage', 'evidence_pieces', 'evidence_asides']
    LOOP
        EXECUTE format('CREATE TRIGGER stays BEFORE UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION evidence_stays()', t);
        EXECUTE format('CREATE TRIGGER all_stay BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION evidence_stays()', t);
    END LOOP;
END $$;

-- Same bytes as contracts.edr.ledger.netstrings.
CREATE FUNCTION evidence_netstrings(VARIADIC fields text[]) RETURNS bytea LANGUAGE sql IMMUTABLE
    RETURN (SELECT convert_to(string_agg(octet_length(convert_to(f, 'UTF8')) || ':' || f || ',', '' ORDER BY n), 'UTF8')
            FROM unnest(fields) WITH ORDINALITY AS u (f, n));

CREATE FUNCTION evidence_tenant() RETURNS integer LANGUAGE sql STABLE
    RETURN nullif(current_setting('fleetstream.tenant_id', true), '')::integer;

-- The one door: writes who wants to read what and the answer; returns the entry's number, which the reading transaction
-- names in fleetstream.custody_no. The answer is contracts.edr.custody.decide's; the table's checks bound it. Bodies of
-- this form are bound to their tables when they are made, whatever a schema is called later.
CREATE FUNCTION edr_custody_enter(p_actor text, p_key_id text, p_role text, p_action text, p_subject text, p_purpose text,
    p_basis text, p_reference text, p_outcome text, p_reason text) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
    INSERT INTO evidence_heads (tenant_id, ledger) VALUES (evidence_tenant(), 'custody') ON CONFLICT DO NOTHING;
    WITH head AS MATERIALIZED (
        SELECT h.last_no + 1 AS no, h.last_sha256 AS before,
               greatest(h.last_at_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS at
        FROM evidence_heads h WHERE h.tenant_id = evidence_tenant() AND h.ledger = 'custody' FOR UPDATE
    ), entry AS MATERIALIZED (
        SELECT no, before, at, sha256(convert_to('fleetstream custody 1' || chr(10), 'UTF8') || evidence_netstrings(
            evidence_tenant()::text, no::text, at::text, encode(before, 'hex'), p_actor, p_key_id, p_role, p_action,
            p_subject, p_purpose, p_basis, p_reference, p_outcome, p_reason)) AS digest
        FROM head
    ), written AS (
        INSERT INTO evidence_custody (tenant_id, entry_no, at_ms, actor, key_id, role, action, subject, purpose, basis,
            reference, outcome, reason, previous_sha256, sha256)
        SELECT evidence_tenant(), no, at, p_actor, p_key_id, p_role, p_action, p_subject, p_purpose, p_basis, p_reference,
            p_outcome, p_reason, before, digest FROM entry
    )
    UPDATE evidence_heads h SET last_no = entry.no, last_at_ms = entry.at, last_sha256 = entry.digest
    FROM entry WHERE h.tenant_id = evidence_tenant() AND h.ledger = 'custody' RETURNING h.last_no;
END;

-- Whether the custody entry that this transaction names allows one of these actions on this subject. The entry must have
-- been committed by an earlier transaction (a rolled-back one leaves no trace, so it opens nothing) less than a minute ago.
CREATE FUNCTION edr_permitted(wanted text[], p_subject text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER
RETURN EXISTS (
    SELECT 1 FROM evidence_custody c
    WHERE c.tenant_id = evidence_tenant()
      AND c.entry_no = nullif(current_setting('fleetstream.custody_no', true), '')::bigint
      AND c.outcome = 'allowed' AND c.action = ANY (wanted) AND c.subject IN ('', p_subject)
      AND c.at_ms > extract(epoch FROM clock_timestamp()) * 1000 - 60000
      AND pg_xact_status(c.written_by) = 'committed');

-- The linkage answers through its own role's functions: where to look, and everything.
CREATE FUNCTION edr_position(p_event_id text)
    RETURNS TABLE (latitude_e7 bigint, longitude_e7 bigint, position_age_ms bigint, zero_at_ms bigint, clock_trusted boolean)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT l.latitude_e7, l.longitude_e7, l.position_age_ms, l.zero_at_ms, l.clock_trusted FROM evidence_linkage l
    WHERE l.tenant_id = evidence_tenant() AND l.event_id = p_event_id AND edr_permitted('{position}', p_event_id)
    ORDER BY l.entry_no DESC LIMIT 1;
END;

CREATE FUNCTION edr_linkage(p_event_id text, p_record text)
    RETURNS TABLE (vin text, driver text, latitude_e7 bigint, longitude_e7 bigint, position_age_ms bigint,
        zero_at_ms bigint, clock_trusted boolean, received_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    SELECT l.vin, l.driver, l.latitude_e7, l.longitude_e7, l.position_age_ms, l.zero_at_ms, l.clock_trusted, l.received_at
    FROM evidence_linkage l JOIN evidence_records r ON r.tenant_id = l.tenant_id AND r.device_key = l.device_key
        AND r.event_id = l.event_id AND encode(r.sha256, 'hex') = p_record
    WHERE l.tenant_id = evidence_tenant() AND l.event_id = p_event_id AND edr_permitted('{linkage}', p_record)
    ORDER BY l.entry_no DESC LIMIT 1;
END;

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['evidence_heads', 'evidence_log', 'evidence_custody', 'evidence_roots', 'evidence_owners',
        'evidence_records', 'evidence_capsules', 'evidence_elements', 'evidence_notices', 'evidence_linkage', 'evidence_pieces',
        'evidence_attachments', 'evidence_asides']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('REVOKE ALL ON %I FROM PUBLIC, fleetstream_sink, fleetstream_api, fleetstream_reader, fleetstream_tenant', t);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO fleetstream_evidence', t);
    END LOOP;
END $$;

DO $$
DECLARE s text := quote_ident(current_schema());
BEGIN
    EXECUTE 'GRANT USAGE ON SCHEMA ' || s || ' TO fleetstream_evidence, fleetstream_linkage';
END $$;

-- The consumer bypasses row-level security and checks tenants itself.
GRANT UPDATE ON evidence_heads, evidence_attachments TO fleetstream_evidence;
REVOKE INSERT ON evidence_custody FROM fleetstream_evidence;
GRANT SELECT ON tenants, devices, bindings, assets TO fleetstream_evidence;
GRANT SELECT, INSERT, UPDATE ON evidence_offsets, evidence_ranges TO fleetstream_evidence;
GRANT SELECT ON seen_ranges TO fleetstream_evidence;
GRANT SELECT ON evidence_offsets TO fleetstream_sink, fleetstream_reader;
GRANT INSERT ON outbox TO fleetstream_evidence;

DO $$
DECLARE f text;
BEGIN
    FOREACH f IN ARRAY ARRAY['edr_custody_enter', 'edr_permitted', 'edr_position', 'edr_linkage']
    LOOP
        EXECUTE format('ALTER FUNCTION %I SET search_path = pg_catalog, pg_temp', f);
    END LOOP;
END $$;

REVOKE EXECUTE ON FUNCTION edr_custody_enter, edr_permitted, edr_position, edr_linkage FROM PUBLIC;
GRANT EXECUTE ON FUNCTION edr_custody_enter, edr_permitted, edr_position, edr_linkage TO fleetstream_api;
GRANT EXECUTE ON FUNCTION edr_permitted TO fleetstream_linkage;
GRANT SELECT ON evidence_linkage, evidence_records TO fleetstream_linkage;
CREATE POLICY linkage ON evidence_linkage FOR SELECT TO fleetstream_linkage USING (tenant_id = evidence_tenant());
CREATE POLICY linkage ON evidence_records FOR SELECT TO fleetstream_linkage USING (tenant_id = evidence_tenant());
ALTER FUNCTION edr_position OWNER TO fleetstream_linkage;
ALTER FUNCTION edr_linkage OWNER TO fleetstream_linkage;

GRANT SELECT ON evidence_heads, evidence_log, evidence_custody, evidence_roots, evidence_records, evidence_capsules,
    evidence_elements, evidence_notices, evidence_pieces, evidence_attachments TO fleetstream_api;
CREATE POLICY custody ON evidence_records FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND edr_permitted('{list,show,report,export,linkage}', encode(sha256, 'hex')));
CREATE POLICY custody ON evidence_elements FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND edr_permitted('{show,report}', encode(record_sha256, 'hex')));
CREATE POLICY custody ON evidence_capsules FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND edr_permitted('{export}', encode(record_sha256, 'hex')));
CREATE POLICY custody ON evidence_attachments FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND edr_permitted('{show,report,export}', encode(claimed_by, 'hex')));
CREATE POLICY custody ON evidence_pieces FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND EXISTS (
        SELECT 1 FROM evidence_attachments a WHERE a.device_key = evidence_pieces.device_key
            AND a.event_id = evidence_pieces.event_id AND a.sha256 = evidence_pieces.sha256
            AND edr_permitted('{export}', encode(a.claimed_by, 'hex'))));
-- The notice itself is an alarm, not a record: operators' live stream reads it by tenant; where to look is in the linkage.
CREATE POLICY own_tenant ON evidence_notices FOR SELECT TO fleetstream_api USING (tenant_id = evidence_tenant());
CREATE POLICY custody ON evidence_custody FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND edr_permitted('{custody}', ''));
CREATE POLICY custody ON evidence_log FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND edr_permitted('{custody}', ''));
CREATE POLICY custody ON evidence_roots FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND edr_permitted('{custody}', ''));
CREATE POLICY custody ON evidence_heads FOR SELECT TO fleetstream_api USING (
    tenant_id = evidence_tenant() AND edr_permitted('{custody}', ''));

-- Whoever runs the platform sees that a record lies there and that its bytes are held, nothing of what it says.
GRANT SELECT (sha256, tenant_id, device_key, event_id, recorder_id, record_no, profile, profile_version, source, complete,
    received_at, stored_at, trust) ON evidence_records TO fleetstream_reader;
CREATE POLICY all_tenants ON evidence_records FOR SELECT TO fleetstream_reader USING (true);

CREATE VIEW edr_records WITH (security_invoker = true) AS
SELECT d.device, encode(r.recorder_id, 'hex') AS recorder, r.record_no, r.profile, r.source, r.complete, r.received_at,
       r.stored_at, encode(r.sha256, 'hex') AS sha256, r.event_id, r.profile_version, r.trust, t.name AS tenant
FROM evidence_records r
JOIN devices d ON d.device_key = r.device_key
JOIN tenants t ON t.tenant_id = r.tenant_id;
GRANT SELECT ON edr_records TO fleetstream_reader;
