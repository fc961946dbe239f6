-- Dead letters and quarantined packets sent again: under their own identity where it is free, else under one of a boot
-- epoch that is reserved for what was rescued. Which letter got which identity stays written down, so a letter sent twice is
-- a duplicate the second time.

-- What the gateway adds to a packet (contracts.stamp), for packets that leave by the outbox; NULL: no header.
ALTER TABLE outbox ADD COLUMN stamp bytea;

CREATE TABLE rescue_epochs (
    device_key integer PRIMARY KEY REFERENCES devices,
    tenant_id  integer NOT NULL REFERENCES tenants,
    boot_epoch bigint NOT NULL,
    nonce      bigint NOT NULL,
    next_seq   bigint NOT NULL DEFAULT 1
);

-- The audit: one row per sending, never changed. kept_by: who set the letter aside.
CREATE TABLE resubmissions (
    resubmission_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id       integer NOT NULL REFERENCES tenants,
    kept_by         text NOT NULL CHECK (kept_by IN ('gateway', 'stream_job')),
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    device_key      integer NOT NULL REFERENCES devices,
    boot_epoch      bigint NOT NULL,
    nonce           bigint NOT NULL,
    seq             bigint NOT NULL,
    rescued         boolean NOT NULL,
    shift_ms        bigint NOT NULL,
    samples         integer NOT NULL,
    sent_to         text NOT NULL,
    sha256          bytea NOT NULL CHECK (length(sha256) = 32),
    asked_by        text NOT NULL,
    asked_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX resubmissions_letter ON resubmissions (topic_id, kafka_partition, kafka_offset);
CREATE TRIGGER resubmissions_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON resubmissions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE INDEX refused_newest ON refused (tenant_id, received_at);
CREATE INDEX quarantined_newest ON quarantined (tenant_id, quarantined_at);

-- Everything that was set aside, one row each. Not a stable view: people read `dead_letters` and `quarantine`.
CREATE VIEW letters WITH (security_invoker = true) AS
SELECT 'gateway' AS kept_by, r.topic_id, r.kafka_partition, r.kafka_offset, r.tenant_id, r.device, r.boot_epoch, r.seq,
       r.reason, r.detail, r.mqtt_topic AS came_by, r.received_at, NULL::integer AS samples, length(r.bytes) AS size_bytes, r.bytes
FROM refused r
UNION ALL
SELECT 'stream_job', q.topic_id, q.kafka_partition, q.kafka_offset, q.tenant_id, coalesce(d.device, ''), q.boot_epoch, q.seq,
       q.reason, q.detail::text, q.topic, coalesce(q.received_at, q.quarantined_at), q.samples, length(q.bytes), q.bytes
FROM quarantined q LEFT JOIN devices d ON d.device_key = q.device_key;

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['rescue_epochs', 'resubmissions'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I USING (tenant_id = (SELECT own_tenant_id()))', t);
        EXECUTE format('CREATE POLICY all_tenants ON %I FOR SELECT TO fleetstream_reader USING (true)', t);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO fleetstream_sink, fleetstream_api', t);
        EXECUTE format('GRANT SELECT ON %I TO fleetstream_reader, fleetstream_tenant', t);
    END LOOP;
END $$;
GRANT UPDATE ON rescue_epochs TO fleetstream_sink, fleetstream_api;
GRANT SELECT ON letters TO fleetstream_sink, fleetstream_api, fleetstream_reader;
-- Reserving an epoch: a row without any number, of the own tenant. What was received stays ingest's word.
GRANT INSERT (device_key, boot_epoch, nonce, tenant_id) ON seen_ranges TO fleetstream_api;
