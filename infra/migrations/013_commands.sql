-- Commands to devices, every change of their state, the epochs that a device must not take again, and how far the
-- topic of latest values has come.

CREATE TABLE device_commands (
    command_id      text PRIMARY KEY CHECK (command_id ~ '^[A-Za-z0-9_-]{1,64}$'),
    tenant_id       integer NOT NULL REFERENCES tenants,
    device_key      integer NOT NULL REFERENCES devices,
    kind            text NOT NULL,
    arguments       jsonb NOT NULL DEFAULT '{}',
    nonce           bigint NOT NULL UNIQUE,
    idempotency_key text CHECK (length(idempotency_key) BETWEEN 1 AND 200),
    asked_by        text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz NOT NULL,
    state           text NOT NULL DEFAULT 'queued'
                    CHECK (state IN ('queued', 'sent', 'done', 'refused', 'expired', 'unknown')),
    reason          text NOT NULL DEFAULT '',
    detail          jsonb NOT NULL DEFAULT '{}',
    attempts        integer NOT NULL DEFAULT 0,
    sent_at         timestamptz,
    -- sent while the device was not heard: one copy waits at the broker, the next leaves when it is heard again
    sent_to_silence boolean NOT NULL DEFAULT false,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    answered_at     timestamptz,
    changed_by      text NOT NULL,
    UNIQUE (tenant_id, idempotency_key)
);
CREATE INDEX device_commands_open ON device_commands (next_attempt_at) WHERE state IN ('queued', 'sent');
CREATE INDEX device_commands_device ON device_commands (device_key, created_at DESC);

-- The audit: one row per change, written by the table itself, so that none can be forgotten; never changed.
CREATE TABLE device_command_changes (
    command_id text NOT NULL REFERENCES device_commands,
    change_no  integer NOT NULL,
    tenant_id  integer NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_by text NOT NULL,
    from_state text,
    to_state   text NOT NULL,
    attempts   integer NOT NULL,
    reason     text NOT NULL,
    PRIMARY KEY (command_id, change_no)
);

CREATE FUNCTION note_command_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.state, NEW.attempts) IS NOT DISTINCT FROM (OLD.state, OLD.attempts) THEN
            RETURN NULL;
        ELSIF OLD.state IN ('done', 'refused', 'expired') THEN
            RAISE EXCEPTION 'command % is %, which is final', OLD.command_id, OLD.state USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    INSERT INTO device_command_changes (command_id, change_no, tenant_id, changed_by, from_state, to_state, attempts, reason)
    SELECT NEW.command_id, 1 + count(*), NEW.tenant_id, NEW.changed_by,
           CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, NEW.state, NEW.attempts, NEW.reason
    FROM device_command_changes WHERE command_id = NEW.command_id;
    RETURN NULL;
END $$;
CREATE TRIGGER device_commands_audit AFTER INSERT OR UPDATE ON device_commands
    FOR EACH ROW EXECUTE FUNCTION note_command_change();

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is never changed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER device_command_changes_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON device_command_changes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Accept a request, once per tenant and idempotency key. said: created, repeated (the same request was accepted
-- before), different (that key belongs to another request), no_such_device, too_many (open commands of the device).
-- of_tenant NULL: any tenant's device (administration).
CREATE FUNCTION submit_command(
    id text, of_tenant integer, to_device text, what text, with_arguments jsonb, number bigint, key text, who text,
    until timestamptz, most_open integer, OUT said text, OUT found_id text
) LANGUAGE plpgsql AS $$
DECLARE
    target devices;
    earlier device_commands;
BEGIN
    SELECT * INTO target FROM devices d
    WHERE d.device = to_device AND d.revoked_at IS NULL AND (of_tenant IS NULL OR d.tenant_id = of_tenant);
    IF NOT FOUND THEN
        said := 'no_such_device';
        RETURN;
    END IF;
    -- requests for one device, and repeats of one key, go one after the other
    PERFORM pg_advisory_xact_lock(7310003, target.device_key);
    SELECT * INTO earlier FROM device_commands c WHERE c.tenant_id = target.tenant_id AND c.idempotency_key = key;
    IF FOUND THEN
        found_id := earlier.command_id;
        said := CASE WHEN (earlier.device_key, earlier.kind, earlier.arguments)
            = (target.device_key, what, with_arguments) THEN 'repeated' ELSE 'different' END;
        RETURN;
    END IF;
    IF (SELECT count(*) FROM device_commands c WHERE c.device_key = target.device_key
        AND c.state IN ('queued', 'sent')) >= most_open THEN
        said := 'too_many';
        RETURN;
    END IF;
    INSERT INTO device_commands (command_id, tenant_id, device_key, kind, arguments, nonce, idempotency_key, asked_by,
        expires_at, changed_by)
    VALUES (id, target.tenant_id, target.device_key, what, with_arguments, number, key, who, until, who);
    said := 'created';
    found_id := id;
END $$;

CREATE VIEW commands WITH (security_invoker = true) AS
SELECT d.device, c.command_id, c.kind, c.arguments, c.state, c.reason, c.detail, c.asked_by, c.created_at, c.expires_at,
       c.attempts, c.sent_at, c.answered_at, t.name AS tenant, c.idempotency_key
FROM device_commands c JOIN devices d USING (device_key) JOIN tenants t ON t.tenant_id = c.tenant_id;

-- The epochs of a device go to the gateways (contracts.identity) in the transaction that first stores one of them.
CREATE FUNCTION known_epochs(of_device integer) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT convert_to(json_build_object('v', 1, 'highest', max(boot_epoch),
        'known', json_agg(json_build_array(boot_epoch, nonce) ORDER BY boot_epoch)
            FILTER (WHERE from_below <= 8 OR from_above <= 24))::text, 'UTF8')
    FROM (SELECT boot_epoch, nonce, row_number() OVER (ORDER BY boot_epoch) AS from_below,
                 row_number() OVER (ORDER BY boot_epoch DESC) AS from_above
          FROM seen_ranges WHERE device_key = of_device) AS e
$$;
CREATE FUNCTION tell_epochs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
    SELECT d.tenant_id, 'epochs', d.device, known_epochs(d.device_key)
    FROM devices d WHERE d.device_key IN (SELECT device_key FROM fresh) ORDER BY d.device_key;
    RETURN NULL;
END $$;
CREATE TRIGGER seen_ranges_told AFTER INSERT ON seen_ranges REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION tell_epochs();

-- How far a projection of a table to a topic has come: every change before this transaction is in the topic.
CREATE TABLE projections (
    name     text PRIMARY KEY,
    position bigint NOT NULL,
    told_at  timestamptz NOT NULL DEFAULT now()
);

DO $$
DECLARE
    s text := quote_ident(current_schema());
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['device_commands', 'device_command_changes'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I USING (tenant_id = (SELECT own_tenant_id()))', t);
        EXECUTE format('CREATE POLICY all_tenants ON %I FOR SELECT TO fleetstream_reader USING (true)', t);
        EXECUTE format('GRANT SELECT ON %I TO fleetstream_api, fleetstream_reader, fleetstream_tenant, fleetstream_sink', t);
        EXECUTE format('GRANT INSERT ON %I TO fleetstream_api, fleetstream_sink', t);
    END LOOP;
    EXECUTE 'GRANT UPDATE ON ' || s || '.device_commands TO fleetstream_sink';
    EXECUTE 'GRANT SELECT, INSERT, UPDATE ON ' || s || '.projections TO fleetstream_sink';
    EXECUTE 'GRANT SELECT ON ' || s || '.commands TO fleetstream_api, fleetstream_reader, fleetstream_tenant, fleetstream_sink';
END $$;
