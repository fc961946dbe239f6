-- Late readings change findings: what came late is judged again in the order of event time, and what was said before is
-- added to, amended, or retracted. Nothing is deleted: a correction raises the row's revision and is kept beside it.

-- corrections: how often judging again wrote this row; from the first on the stream's own words about it do not count.
ALTER TABLE finding_rows ADD COLUMN corrections integer NOT NULL DEFAULT 0;
ALTER TABLE finding_rows ADD COLUMN retracted_at timestamptz;
CREATE INDEX finding_rows_device ON finding_rows (device_key, opened_at);

CREATE TABLE finding_corrections (
    finding_id   text NOT NULL REFERENCES finding_rows ON DELETE CASCADE,
    revision     integer NOT NULL,          -- of the finding afterwards
    tenant_id    integer NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('added', 'amended', 'restored', 'retracted')),
    reason       text NOT NULL,
    before       jsonb,                     -- what it had said; NULL: nothing
    corrected_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (finding_id, revision)
);

-- Readings that detection met out of order, until they are judged in it. One row a device; from_ms and to_ms are event
-- times. wanted: how far each partition must be stored ("topic/partition": offset) before the store holds them all.
CREATE TABLE late_due (
    device_key integer PRIMARY KEY REFERENCES devices,
    tenant_id  integer NOT NULL,
    from_ms    bigint NOT NULL,
    to_ms      bigint NOT NULL,
    wanted     jsonb NOT NULL DEFAULT '{}',
    notes      bigint NOT NULL DEFAULT 1,   -- how often noted: who has worked an older one leaves it
    noted_at   timestamptz NOT NULL DEFAULT now()
);

-- Devices whose findings are told from the ordered history for a while, because the stream has not seen it in order.
CREATE TABLE late_followed (
    device_key integer PRIMARY KEY REFERENCES devices,
    tenant_id  integer NOT NULL,
    late_to_ms bigint NOT NULL,
    judged_ms  bigint NOT NULL
);

-- What detectors had learnt of a device, in order, from all readings before at_ms. since_ms: where that began; 0: with the
-- device's first reading.
CREATE TABLE detection_snapshots (
    device_key  integer NOT NULL REFERENCES devices,
    at_ms       bigint NOT NULL,
    tenant_id   integer NOT NULL,
    set_version text NOT NULL,
    since_ms    bigint NOT NULL,
    state       bytea NOT NULL,
    PRIMARY KEY (device_key, at_ms)
);

CREATE VIEW corrections WITH (security_invoker = true) AS
SELECT c.finding_id, a.name AS asset, d.device, f.deployment, f.cause, f.opened_at, c.kind, c.revision, c.reason, c.before,
       c.corrected_at, t.name AS tenant
FROM finding_corrections c
JOIN finding_rows f USING (finding_id)
JOIN devices d ON d.device_key = f.device_key
JOIN tenants t ON t.tenant_id = f.tenant_id
LEFT JOIN assets a ON a.asset_id = f.asset_id;

CREATE OR REPLACE VIEW findings WITH (security_invoker = true) AS
SELECT f.finding_id, a.name AS asset, s.path AS signal, f.deployment, f.detector, f.cause, f.opened_at, f.last_at,
       f.closed_at, f.severity, f.score, f.threshold, f.observed, f.expected_low, f.expected_high, f.readings,
       f.readings_lost, f.revision, s.unit, d.device, f.deployment_version, f.probability, f.regime, f.contributions,
       f.advice, f.stored_at, f.changed_at, t.name AS tenant, f.tenant_id, f.asset_id, f.device_key,
       f.signal AS signal_number, f.model, f.corrections, f.retracted_at
FROM finding_rows f
JOIN signals s ON s.signal = f.signal
JOIN devices d ON d.device_key = f.device_key
JOIN tenants t ON t.tenant_id = f.tenant_id
LEFT JOIN assets a ON a.asset_id = f.asset_id;

DO $$
DECLARE
    s text := quote_ident(current_schema());
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['finding_corrections', 'late_due', 'late_followed', 'detection_snapshots'] LOOP
        EXECUTE format('ALTER TABLE %s.%I ENABLE ROW LEVEL SECURITY', s, t);
        EXECUTE format('CREATE POLICY own_tenant ON %s.%I USING (tenant_id = (SELECT own_tenant_id()))', s, t);
        EXECUTE format('CREATE POLICY all_tenants ON %s.%I FOR SELECT TO fleetstream_reader USING (true)', s, t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s.%I TO fleetstream_sink', s, t);
        EXECUTE format('GRANT SELECT ON %s.%I TO fleetstream_reader', s, t);
    END LOOP;
    EXECUTE format('GRANT SELECT ON %s.finding_corrections TO fleetstream_api, fleetstream_tenant', s);
    EXECUTE format('GRANT SELECT ON %s.corrections TO fleetstream_sink, fleetstream_api, fleetstream_reader,'
        ' fleetstream_tenant', s);
END $$;
