-- Late data: every publication has its own number, roll-ups follow their windows, final means final, nothing too late
-- is dropped in silence.

ALTER TABLE signals ADD COLUMN lateness_s integer NOT NULL DEFAULT 2592000;

-- publications: how often the row was published. The last one says what the row says now.
ALTER TABLE window_aggregates ADD COLUMN publications integer NOT NULL DEFAULT 0;
ALTER TABLE window_publications ADD COLUMN publication integer;
UPDATE window_publications p SET publication = numbered.publication
FROM (SELECT ctid AS place, row_number() OVER (PARTITION BY device_key, signal, width_s, starts_at
          ORDER BY revision) AS publication FROM window_publications) numbered
WHERE p.ctid = numbered.place;
UPDATE window_aggregates w SET publications = said.last
FROM (SELECT device_key, signal, width_s, starts_at, max(publication) AS last FROM window_publications
      GROUP BY 1, 2, 3, 4) said
WHERE (w.device_key, w.signal, w.width_s, w.starts_at) = (said.device_key, said.signal, said.width_s, said.starts_at);
ALTER TABLE window_publications ALTER COLUMN publication SET NOT NULL;
ALTER TABLE window_publications DROP CONSTRAINT window_publications_pkey;
ALTER TABLE window_publications ADD PRIMARY KEY (device_key, signal, width_s, starts_at, publication);

-- Dirty intervals: roll-ups whose narrower windows were published since they were made. Worked by the closer.
CREATE TABLE rollup_due (
    width_s    integer NOT NULL,
    starts_at  timestamptz NOT NULL,
    device_key integer NOT NULL,
    signal     smallint NOT NULL,
    tenant_id  integer NOT NULL,
    PRIMARY KEY (width_s, starts_at, device_key, signal)
);
INSERT INTO rollup_due (width_s, starts_at, device_key, signal, tenant_id)
SELECT DISTINCT 3600, date_bin('3600 s', starts_at, 'epoch'::timestamptz), device_key, signal, tenant_id
FROM window_aggregates WHERE width_s = 60;

-- One row: no packet changes a row any more whose final_at is not after this. The sink holds a shared advisory lock on
-- this table while it relies on it; the closer takes the exclusive one to move it.
CREATE TABLE finality (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    final_before timestamptz NOT NULL
);

-- The report of readings beyond their signal's lateness class, by receive hour; their bytes are in `quarantined`.
CREATE TABLE too_late_readings (
    device_key    integer NOT NULL,
    signal        smallint NOT NULL,
    received_hour timestamptz NOT NULL,
    tenant_id     integer NOT NULL,
    samples       bigint NOT NULL,
    oldest_ms     bigint NOT NULL,
    newest_ms     bigint NOT NULL,
    PRIMARY KEY (device_key, signal, received_hour)
);

-- Whose a contested boot epoch is. First come is decided between two lanes by which transaction was first, and that is
-- not in the log; so the decision is kept, and a replay follows it.
CREATE TABLE epoch_owners (
    device_key integer NOT NULL,
    boot_epoch bigint NOT NULL,
    nonce      bigint NOT NULL,
    tenant_id  integer NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (device_key, boot_epoch)
);

CREATE OR REPLACE VIEW windows WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, w.width_s, w.starts_at, w.n,
       scaled(w.min_units, s.exponent) AS min, scaled(w.max_units, s.exponent) AS max,
       scaled(w.sum_units, s.exponent) / w.n AS mean,
       CASE WHEN w.n > 1 THEN sqrt(((w.sumsq_units * w.n - w.sum_units * w.sum_units)
            / (w.n::numeric * (w.n - 1)))::double precision) * scaled(1, s.exponent) END AS stddev,
       scaled(w.last_units, s.exponent) AS last,
       cardinality(w.late_minutes) AS revision,
       d.kind <> 'recording' AND coalesce(w.starts_at + (w.width_s + s.lateness_s) * interval '1 s'
            <= (SELECT f.final_before FROM finality f), false) AS final,
       s.unit, d.device, w.state <> 0 AS closed, w.published_revision, t.name AS tenant,
       CASE WHEN d.kind <> 'recording' THEN w.starts_at + (w.width_s + s.lateness_s) * interval '1 s' END AS final_at,
       w.publications
FROM window_aggregates w
JOIN signals s ON s.signal = w.signal
JOIN devices d ON d.device_key = w.device_key
JOIN tenants t ON t.tenant_id = w.tenant_id
LEFT JOIN bindings b ON b.device_key = w.device_key AND b.valid @> w.starts_at
LEFT JOIN assets a ON a.asset_id = b.asset_id;

-- Windows that changed after they were published or that late packets changed, with what they said first.
CREATE OR REPLACE VIEW late WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, w.width_s, w.starts_at, cardinality(w.late_minutes) AS revision,
       (SELECT array_agg(at_ms(m * 60000::bigint) ORDER BY m) FROM unnest(w.late_minutes) AS m) AS late_at,
       w.n, p.n AS first_published_n, scaled(w.sum_units, s.exponent) / w.n AS mean,
       scaled(p.sum_units, s.exponent) / p.n AS first_published_mean, p.published_at AS first_published_at,
       d.device, t.name AS tenant,
       scaled(p.min_units, s.exponent) AS first_published_min, scaled(p.max_units, s.exponent) AS first_published_max,
       scaled(p.last_units, s.exponent) AS first_published_last, p.revision AS first_published_revision, w.publications
FROM window_aggregates w
JOIN signals s ON s.signal = w.signal
JOIN devices d ON d.device_key = w.device_key
JOIN tenants t ON t.tenant_id = w.tenant_id
LEFT JOIN window_publications p ON (p.device_key, p.signal, p.width_s, p.starts_at, p.publication)
    = (w.device_key, w.signal, w.width_s, w.starts_at, 1)
LEFT JOIN bindings b ON b.device_key = w.device_key AND b.valid @> w.starts_at
LEFT JOIN assets a ON a.asset_id = b.asset_id
WHERE cardinality(w.late_minutes) > 0 OR w.publications > 1;

-- Everything that windows ever said, in the order in which they said it.
CREATE VIEW publications WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, p.width_s, p.starts_at, p.publication, p.revision, p.n,
       scaled(p.min_units, s.exponent) AS min, scaled(p.max_units, s.exponent) AS max,
       scaled(p.sum_units, s.exponent) / p.n AS mean, scaled(p.last_units, s.exponent) AS last, p.published_at,
       s.unit, d.device, t.name AS tenant
FROM window_publications p
JOIN signals s ON s.signal = p.signal
JOIN devices d ON d.device_key = p.device_key
JOIN tenants t ON t.tenant_id = p.tenant_id
LEFT JOIN bindings b ON b.device_key = p.device_key AND b.valid @> p.starts_at
LEFT JOIN assets a ON a.asset_id = b.asset_id;

CREATE VIEW too_late WITH (security_invoker = true) AS
SELECT d.device, s.path AS signal, r.received_hour, r.samples, at_ms(r.oldest_ms) AS oldest_at,
       at_ms(r.newest_ms) AS newest_at, s.lateness_s, t.name AS tenant
FROM too_late_readings r
JOIN signals s ON s.signal = r.signal
JOIN devices d ON d.device_key = r.device_key
JOIN tenants t ON t.tenant_id = r.tenant_id;

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['rollup_due', 'too_late_readings', 'epoch_owners']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I USING (tenant_id = '
            'nullif(current_setting(''fleetstream.tenant_id'', true), '''')::integer)', t);
        EXECUTE format('CREATE POLICY all_tenants ON %I FOR SELECT TO fleetstream_reader USING (true)', t);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON rollup_due, finality, too_late_readings, epoch_owners TO fleetstream_sink;
GRANT SELECT ON finality, too_late_readings, epoch_owners, publications, too_late
    TO fleetstream_sink, fleetstream_api, fleetstream_reader, fleetstream_tenant;
