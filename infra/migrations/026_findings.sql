-- What detectors in the stream found: one row per excursion of one device, written by `stream_jobs detect` together with
-- its outbox row. A row is a function of the log: its identity follows from deployment, version, device, cause and
-- beginning, its content from the readings up to `last_at`. So a batch that comes again, or detection begun anew from the
-- start of the topics, writes the same rows; `revision` rises with each thing that was said of the excursion (opened,
-- worse, still there, closed), and a row of a lower or equal revision never replaces another.
CREATE TABLE finding_rows (
    finding_id         text PRIMARY KEY CHECK (finding_id ~ '^[0-9a-f]{32}$'),
    tenant_id          integer NOT NULL REFERENCES tenants,
    asset_id           integer REFERENCES assets,  -- what the device measured when the excursion began; NULL: nothing
    device_key         integer NOT NULL REFERENCES devices,
    deployment         text NOT NULL,              -- name of the declared detector (anomaly/deployed.py)
    deployment_version text NOT NULL,              -- changes with any parameter
    detector           text NOT NULL,
    cause              text NOT NULL,              -- family of faults; one alert per asset and cause
    signal             smallint NOT NULL REFERENCES signals,  -- the one that carried most when it was worst
    signals            smallint[] NOT NULL,
    opened_at          timestamptz NOT NULL,       -- first alarm of the excursion, event time
    last_at            timestamptz NOT NULL,       -- event time up to which this row speaks
    closed_at          timestamptz,
    severity           smallint NOT NULL CHECK (severity BETWEEN 1 AND 4),
    score              double precision NOT NULL,  -- the worst so far, in the detector's own unit
    threshold          double precision NOT NULL,
    observed           double precision,           -- these five belong to the worst reading
    expected_low       double precision,
    expected_high      double precision,
    probability        double precision,
    regime             integer,
    contributions      jsonb NOT NULL DEFAULT '[]',  -- [[signal, share], …]
    advice             text NOT NULL DEFAULT '',
    readings           integer NOT NULL,           -- moments in alarm
    readings_lost      boolean NOT NULL DEFAULT false,  -- readings of this time came too late to be judged
    revision           integer NOT NULL CHECK (revision >= 1),
    stored_at          timestamptz NOT NULL DEFAULT now(),
    changed_at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX finding_rows_changed ON finding_rows (changed_at);
CREATE INDEX finding_rows_asset ON finding_rows (asset_id, opened_at DESC);
CREATE INDEX finding_rows_tenant ON finding_rows (tenant_id, opened_at DESC, finding_id);

-- How far each run of detection has come (a run: one declared set of detectors over one log, from its beginning). A
-- checkpoint whose run is not here belongs to another store.
CREATE TABLE detection_runs (
    run_id      uuid PRIMARY KEY,
    set_version text NOT NULL,
    last_batch  bigint NOT NULL DEFAULT -1,
    readings    bigint NOT NULL DEFAULT 0,
    late        bigint NOT NULL DEFAULT 0,  -- too far behind the device's newest to be judged
    findings    bigint NOT NULL DEFAULT 0,
    begun_at    timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now()
);

CREATE VIEW findings WITH (security_invoker = true) AS
SELECT f.finding_id, a.name AS asset, s.path AS signal, f.deployment, f.detector, f.cause, f.opened_at, f.last_at,
       f.closed_at, f.severity, f.score, f.threshold, f.observed, f.expected_low, f.expected_high, f.readings,
       f.readings_lost, f.revision, s.unit, d.device, f.deployment_version, f.probability, f.regime, f.contributions,
       f.advice, f.stored_at, f.changed_at, t.name AS tenant, f.tenant_id, f.asset_id, f.device_key,
       f.signal AS signal_number
FROM finding_rows f
JOIN signals s ON s.signal = f.signal
JOIN devices d ON d.device_key = f.device_key
JOIN tenants t ON t.tenant_id = f.tenant_id
LEFT JOIN assets a ON a.asset_id = f.asset_id;

DO $$
DECLARE s text := quote_ident(current_schema());
BEGIN
    ALTER TABLE finding_rows ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own_tenant ON finding_rows USING (tenant_id = (SELECT own_tenant_id()));
    CREATE POLICY all_tenants ON finding_rows FOR SELECT TO fleetstream_reader USING (true);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s.finding_rows TO fleetstream_sink', s);
    EXECUTE format('GRANT SELECT ON %s.finding_rows, %s.findings TO fleetstream_sink, fleetstream_api, fleetstream_reader,'
        ' fleetstream_tenant', s, s);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s.detection_runs TO fleetstream_sink', s);
    EXECUTE format('GRANT SELECT ON %s.detection_runs TO fleetstream_reader', s);
END $$;
