-- History: packet rows older than a while become blocks, one per device, signal and ten minutes (several when packets came
-- late or the device restarted). `stream_jobs/compaction.py` makes them; the views show rows and blocks as one.
--
-- Steps are differences to the element before; the first one is to the base column, so it is 0 there. One of the columns
-- of a pair (steps2/steps4, units2/units4/units8/raw) is set, the narrowest that holds the block.

-- What survives of a packet: its identity, hash, times and counts. One row per run of sequence numbers; a number that the
-- run does not hold (it came later, or never) is NULL in every array and 32 zero bytes in `sha256s`.
CREATE TABLE packet_blocks (
    device_key     integer NOT NULL,
    boot_epoch     bigint NOT NULL,
    first_seq      bigint NOT NULL,
    tenant_id      integer NOT NULL,
    packets        integer NOT NULL,
    received_to    timestamptz NOT NULL,  -- newest receipt: retention counts from it
    received_ms    bigint NOT NULL,
    received_steps integer[] NOT NULL,
    first_ms       bigint NOT NULL,
    first_steps    integer[] NOT NULL,
    spans_ms       bigint[] NOT NULL,     -- last event time - first event time
    stored_us      bigint[] NOT NULL,     -- stored time - receive time, microseconds
    samples        integer[] NOT NULL,
    lanes          smallint[] NOT NULL,
    clock_trusted  boolean[] NOT NULL,
    sha256s        bytea NOT NULL,
    PRIMARY KEY (device_key, boot_epoch, first_seq)
);

CREATE TABLE reading_blocks (
    device_key  integer NOT NULL,
    signal      smallint NOT NULL,
    exponent    smallint NOT NULL,
    tenant_id   integer NOT NULL,
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    received_to timestamptz NOT NULL,
    boot_epoch  bigint NOT NULL,
    run_seq     bigint NOT NULL,          -- packet_blocks.first_seq of its packets
    base_ms     bigint NOT NULL,
    base_units  bigint,
    base_seq    bigint NOT NULL,
    n           integer NOT NULL,
    scale       double precision NOT NULL,  -- 10 ^ |exponent|
    steps2      smallint[],
    steps4      integer[],
    units2      smallint[],               -- differences; NULL element: the sensor sent no number
    units4      integer[],
    units8      bigint[],                 -- units themselves
    raw         double precision[],       -- values that are no multiple of the resolution
    seq_steps   integer[] NOT NULL,
    pos_steps   integer[] NOT NULL,       -- position within the packet, from 1
    qualities   smallint[]                -- NULL: every sample is good
);
CREATE INDEX reading_blocks_time ON reading_blocks (device_key, signal, first_at, last_at);

-- Arrays of steps compress well, and a block is read whole or not at all: compress each row, keep it in one place.
ALTER TABLE packet_blocks SET (toast_tuple_target = 128);
ALTER TABLE reading_blocks SET (toast_tuple_target = 128);
ALTER TABLE packet_blocks ALTER sha256s SET STORAGE EXTERNAL;
DO $$
DECLARE c record;
BEGIN
    FOR c IN SELECT attrelid::regclass AS of_table, attname FROM pg_attribute
             WHERE attrelid IN ('packet_blocks'::regclass, 'reading_blocks'::regclass) AND attnum > 0 AND attndims > 0
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER %I SET STORAGE MAIN', c.of_table, c.attname);
    END LOOP;
END $$;

CREATE OR REPLACE VIEW readings WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, at_ms(p.base_ms + u.offset_ms) AS measured_at,
       nullif(u.val, 'NaN') AS value, coalesce(u.quality, 0::smallint) AS quality, s.unit,
       d.device, p.boot_epoch, p.seq, p.received_at, t.name AS tenant
FROM packet_rows p
CROSS JOIN LATERAL unnest(p.signals, p.offsets_ms, p.vals, p.qualities) AS u (signal, offset_ms, val, quality)
JOIN signals s ON s.signal = u.signal
JOIN devices d ON d.device_key = p.device_key
JOIN tenants t ON t.tenant_id = p.tenant_id
LEFT JOIN bindings b ON b.device_key = p.device_key AND b.valid @> at_ms(p.base_ms + u.offset_ms)
LEFT JOIN assets a ON a.asset_id = b.asset_id
UNION ALL
SELECT a.name, s.path, at_ms(r.ms), nullif(r.val, 'NaN'), coalesce(r.quality, 0::smallint), s.unit, d.device,
       k.boot_epoch, r.seq, at_ms(p.received[r.seq - k.run_seq + 1]), t.name
FROM reading_blocks k
CROSS JOIN LATERAL (
    SELECT array_agg(g.ms) AS received FROM (
        SELECT q.received_ms + sum(v.step) OVER (ORDER BY v.i ROWS UNBOUNDED PRECEDING) AS ms
        FROM packet_blocks q CROSS JOIN LATERAL unnest(q.received_steps) WITH ORDINALITY AS v (step, i)
        WHERE q.device_key = k.device_key AND q.boot_epoch = k.boot_epoch AND q.first_seq = k.run_seq) g) p
CROSS JOIN LATERAL (
    SELECT k.base_ms + sum(v.step) OVER w AS ms, k.base_seq + sum(v.seq_step) OVER w AS seq,
           CASE WHEN k.raw IS NOT NULL THEN v.raw
                WHEN v.unit IS NULL AND v.unit8 IS NULL THEN NULL
                WHEN k.exponent < 0 THEN coalesce(v.unit8, k.base_units + sum(v.unit) OVER w)::double precision / k.scale
                ELSE coalesce(v.unit8, k.base_units + sum(v.unit) OVER w)::double precision * k.scale END AS val,
           v.quality
    FROM unnest(coalesce(k.steps4, k.steps2::integer[]), coalesce(k.units4, k.units2::integer[]), k.units8, k.raw,
                k.seq_steps, k.qualities) WITH ORDINALITY AS v (step, unit, unit8, raw, seq_step, quality, i)
    WINDOW w AS (ORDER BY v.i ROWS UNBOUNDED PRECEDING)) r
JOIN signals s ON s.signal = k.signal
JOIN devices d ON d.device_key = k.device_key
JOIN tenants t ON t.tenant_id = k.tenant_id
LEFT JOIN bindings b ON b.device_key = k.device_key AND b.valid @> at_ms(r.ms)
LEFT JOIN assets a ON a.asset_id = b.asset_id;

CREATE OR REPLACE VIEW packets WITH (security_invoker = true) AS
SELECT d.device, p.boot_epoch, p.seq, a.name AS asset, p.received_at, p.stored_at, p.samples,
       encode(p.sha256, 'hex') AS sha256, p.lane, p.first_at, p.last_at, p.clock_trusted, t.name AS tenant
FROM packet_rows p
JOIN devices d ON d.device_key = p.device_key
JOIN tenants t ON t.tenant_id = p.tenant_id
LEFT JOIN bindings b ON b.device_key = p.device_key AND b.valid @> p.first_at
LEFT JOIN assets a ON a.asset_id = b.asset_id
UNION ALL
SELECT d.device, k.boot_epoch, k.first_seq + p.i - 1, a.name, at_ms(p.received_ms),
       at_ms(p.received_ms) + p.stored_us * interval '1 microsecond', p.samples,
       encode(substr(k.sha256s, (p.i * 32 - 31)::integer, 32), 'hex'), p.lane, at_ms(p.first_ms),
       at_ms(p.first_ms + p.span_ms), p.clock_trusted, t.name
FROM packet_blocks k
CROSS JOIN LATERAL (
    SELECT v.i, k.received_ms + sum(v.received) OVER w AS received_ms, k.first_ms + sum(v.first) OVER w AS first_ms,
           v.span_ms, v.stored_us, v.samples, v.lane, v.clock_trusted
    FROM unnest(k.received_steps, k.first_steps, k.spans_ms, k.stored_us, k.samples, k.lanes, k.clock_trusted)
        WITH ORDINALITY AS v (received, first, span_ms, stored_us, samples, lane, clock_trusted, i)
    WINDOW w AS (ORDER BY v.i ROWS UNBOUNDED PRECEDING)) p
JOIN devices d ON d.device_key = k.device_key
JOIN tenants t ON t.tenant_id = k.tenant_id
LEFT JOIN bindings b ON b.device_key = k.device_key AND b.valid @> at_ms(p.first_ms)
LEFT JOIN assets a ON a.asset_id = b.asset_id
WHERE p.samples IS NOT NULL;

DO $$
DECLARE t text; s text := quote_ident(current_schema());
BEGIN
    FOREACH t IN ARRAY ARRAY['packet_blocks', 'reading_blocks'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I USING (tenant_id = (SELECT own_tenant_id()))', t);
        EXECUTE format('CREATE POLICY all_tenants ON %I FOR SELECT TO fleetstream_reader USING (true)', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s.%I TO fleetstream_sink', s, t);
        EXECUTE format('GRANT SELECT ON %s.%I TO fleetstream_api, fleetstream_reader, fleetstream_tenant', s, t);
    END LOOP;
END $$;
