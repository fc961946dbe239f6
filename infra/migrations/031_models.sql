-- Trained models: which file (named by its SHA-256, in the folder of models) judges which class of asset. The file comes
-- first and is never changed; the row is the truth about its life. A model is made of healthy readings of a class of
-- machine over all tenants and holds no reading, so it belongs to no tenant: operators (the sink) write, the API and the
-- reader read, a tenant's own SQL does not (its findings name the model).
CREATE TABLE model_rows (
    model         text PRIMARY KEY CHECK (model ~ '^[0-9a-f]{64}$'),
    name          text NOT NULL CHECK (name ~ '^[a-z0-9-]{1,40}$'),  -- of the recipe and of the deployment in findings
    asset_kind    text NOT NULL CHECK (asset_kind IN ('car', 'truck', 'turbine', 'pump', 'process', 'other')),
    detector      text NOT NULL,
    signals       smallint[] NOT NULL,
    state         text NOT NULL DEFAULT 'candidate' CHECK (state IN ('candidate', 'live', 'retired')),
    parent        text REFERENCES model_rows,  -- what was live when this one was trained
    trained_from  timestamptz NOT NULL,        -- event times, up to held_back_from
    held_back_from timestamptz NOT NULL,
    held_back_until timestamptz NOT NULL,
    devices       integer NOT NULL,
    records       bigint NOT NULL,             -- packets that were read
    readings      bigint NOT NULL,
    training_rows bigint NOT NULL,
    seed          bigint NOT NULL,
    code          text NOT NULL,
    input_sha256  text NOT NULL,
    score         jsonb NOT NULL,              -- on what was held back, when it was trained
    size_bytes    integer NOT NULL,
    made_by       text NOT NULL,
    made_at       timestamptz NOT NULL DEFAULT now(),
    changed_at    timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX model_rows_one_live ON model_rows (name) WHERE state = 'live';
CREATE INDEX model_rows_name ON model_rows (name, made_at DESC);

-- The audit and the schedule: which model judges which event times follows from these rows alone, never changed.
CREATE TABLE model_changes (
    change_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL,
    action       text NOT NULL CHECK (action IN ('promoted', 'rolled_back')),
    model        text REFERENCES model_rows,   -- NULL: nothing judges from then on
    replaced     text REFERENCES model_rows,
    effective_at timestamptz NOT NULL,         -- event time from which it holds
    anew         boolean NOT NULL DEFAULT false,  -- that time may have been judged already: detection begins anew
    comparison   jsonb,                        -- what was compared, and with which outcome
    anyway       text,                         -- why it was promoted though it was worse
    asked_by     text NOT NULL,
    asked_at     timestamptz NOT NULL DEFAULT now(),
    CHECK (action = 'rolled_back' OR model IS NOT NULL)
);
CREATE INDEX model_changes_name ON model_changes (name, change_id);
CREATE TRIGGER model_changes_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON model_changes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A finding names the model that judged ('': a declared detector).
ALTER TABLE finding_rows ADD COLUMN model text NOT NULL DEFAULT '';
CREATE INDEX finding_rows_model ON finding_rows (model, opened_at DESC) WHERE model <> '';

CREATE OR REPLACE VIEW findings WITH (security_invoker = true) AS
SELECT f.finding_id, a.name AS asset, s.path AS signal, f.deployment, f.detector, f.cause, f.opened_at, f.last_at,
       f.closed_at, f.severity, f.score, f.threshold, f.observed, f.expected_low, f.expected_high, f.readings,
       f.readings_lost, f.revision, s.unit, d.device, f.deployment_version, f.probability, f.regime, f.contributions,
       f.advice, f.stored_at, f.changed_at, t.name AS tenant, f.tenant_id, f.asset_id, f.device_key,
       f.signal AS signal_number, f.model
FROM finding_rows f
JOIN signals s ON s.signal = f.signal
JOIN devices d ON d.device_key = f.device_key
JOIN tenants t ON t.tenant_id = f.tenant_id
LEFT JOIN assets a ON a.asset_id = f.asset_id;

CREATE VIEW models WITH (security_invoker = true) AS
SELECT m.model, m.name, m.asset_kind, m.detector, m.state, m.trained_from, m.held_back_from, m.held_back_until, m.devices,
       m.training_rows, (m.score ->> 'false_alarms')::integer AS false_alarms, (m.score ->> 'hours')::double precision AS hours,
       m.parent, c.effective_at, c.asked_by AS changed_by, c.anyway, m.made_by, m.made_at, m.changed_at, m.records, m.readings,
       m.seed, m.code, m.input_sha256, m.score, m.signals, m.size_bytes
FROM model_rows m
LEFT JOIN LATERAL (
    SELECT * FROM model_changes c WHERE c.model = m.model ORDER BY change_id DESC LIMIT 1) AS c ON true;

DO $$
DECLARE s text := quote_ident(current_schema()); t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['model_rows', 'model_changes'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY everyone_reads ON %I FOR SELECT TO fleetstream_reader, fleetstream_api'
            ' USING (true)', t);
        EXECUTE format('GRANT SELECT ON %s.%I TO fleetstream_sink, fleetstream_reader, fleetstream_api', s, t);
    END LOOP;
    EXECUTE format('GRANT INSERT, UPDATE ON %s.model_rows TO fleetstream_sink', s);
    EXECUTE format('GRANT INSERT ON %s.model_changes TO fleetstream_sink', s);
    EXECUTE format('GRANT SELECT ON %s.models TO fleetstream_sink, fleetstream_reader, fleetstream_api', s);
END $$;
