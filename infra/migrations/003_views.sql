-- The stable views: their names and columns stay. All are security_invoker, so the reader's row-level rights apply.

CREATE FUNCTION at_ms(ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN to_timestamp(ms::double precision / 1000);

-- Multiply integer units by a power of ten; dividing by an exact power gives the double that parsing the decimal would.
CREATE FUNCTION scaled(units numeric, exponent smallint) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN exponent < 0 THEN units::double precision / (10::numeric ^ (-exponent))::double precision
                ELSE (units * 10::numeric ^ exponent)::double precision END;

CREATE VIEW readings WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, at_ms(p.base_ms + u.offset_ms) AS measured_at,
       nullif(u.val, 'NaN') AS value, coalesce(u.quality, 0::smallint) AS quality, s.unit,
       d.device, p.boot_epoch, p.seq, p.received_at, t.name AS tenant
FROM packet_rows p
CROSS JOIN LATERAL unnest(p.signals, p.offsets_ms, p.vals, p.qualities) AS u (signal, offset_ms, val, quality)
JOIN signals s ON s.signal = u.signal
JOIN devices d ON d.device_key = p.device_key
JOIN tenants t ON t.tenant_id = p.tenant_id
LEFT JOIN bindings b ON b.device_key = p.device_key AND b.valid @> at_ms(p.base_ms + u.offset_ms)
LEFT JOIN assets a ON a.asset_id = b.asset_id;

CREATE VIEW windows WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, w.width_s, w.starts_at, w.n,
       scaled(w.min_units, s.exponent) AS min, scaled(w.max_units, s.exponent) AS max,
       scaled(w.sum_units, s.exponent) / w.n AS mean,
       CASE WHEN w.n > 1 THEN sqrt(((w.sumsq_units * w.n - w.sum_units * w.sum_units)
            / (w.n::numeric * (w.n - 1)))::double precision) * scaled(1, s.exponent) END AS stddev,
       scaled(w.last_units, s.exponent) AS last,
       cardinality(w.late_minutes) AS revision,
       w.starts_at + w.width_s * interval '1 s' + interval '30 days' < now() AS final,
       s.unit, d.device, w.state <> 0 AS closed, w.published_revision, t.name AS tenant
FROM window_aggregates w
JOIN signals s ON s.signal = w.signal
JOIN devices d ON d.device_key = w.device_key
JOIN tenants t ON t.tenant_id = w.tenant_id
LEFT JOIN bindings b ON b.device_key = w.device_key AND b.valid @> w.starts_at
LEFT JOIN assets a ON a.asset_id = b.asset_id;

CREATE VIEW packets WITH (security_invoker = true) AS
SELECT d.device, p.boot_epoch, p.seq, a.name AS asset, p.received_at, p.stored_at, p.samples,
       encode(p.sha256, 'hex') AS sha256, p.lane, p.first_at, p.last_at, p.clock_trusted, t.name AS tenant
FROM packet_rows p
JOIN devices d ON d.device_key = p.device_key
JOIN tenants t ON t.tenant_id = p.tenant_id
LEFT JOIN bindings b ON b.device_key = p.device_key AND b.valid @> p.first_at
LEFT JOIN assets a ON a.asset_id = b.asset_id;

CREATE VIEW latest WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, at_ms(l.measured_ms) AS measured_at, nullif(l.val, 'NaN') AS value,
       l.quality, s.unit, l.received_at, d.device, t.name AS tenant
FROM latest_values l
JOIN signals s ON s.signal = l.signal
JOIN devices d ON d.device_key = l.device_key
JOIN tenants t ON t.tenant_id = l.tenant_id
LEFT JOIN bindings b ON b.device_key = l.device_key AND b.valid @> at_ms(l.measured_ms)
LEFT JOIN assets a ON a.asset_id = b.asset_id;

-- Windows that late packets changed, with what they said when first published.
CREATE VIEW late WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, w.width_s, w.starts_at, cardinality(w.late_minutes) AS revision,
       (SELECT array_agg(at_ms(m * 60000::bigint) ORDER BY m) FROM unnest(w.late_minutes) AS m) AS late_at,
       w.n, p.n AS first_published_n, scaled(w.sum_units, s.exponent) / w.n AS mean,
       scaled(p.sum_units, s.exponent) / p.n AS first_published_mean, p.published_at AS first_published_at,
       d.device, t.name AS tenant
FROM window_aggregates w
JOIN signals s ON s.signal = w.signal
JOIN devices d ON d.device_key = w.device_key
JOIN tenants t ON t.tenant_id = w.tenant_id
LEFT JOIN LATERAL (
    SELECT n, sum_units, published_at FROM window_publications p
    WHERE (p.device_key, p.signal, p.width_s, p.starts_at) = (w.device_key, w.signal, w.width_s, w.starts_at)
    ORDER BY p.revision, p.published_at LIMIT 1) p ON true
LEFT JOIN bindings b ON b.device_key = w.device_key AND b.valid @> w.starts_at
LEFT JOIN assets a ON a.asset_id = b.asset_id
WHERE cardinality(w.late_minutes) > 0;

CREATE VIEW quarantine WITH (security_invoker = true) AS
SELECT d.device, q.boot_epoch, q.seq, q.reason, q.samples, q.detail, q.received_at, q.quarantined_at,
       q.topic, q.kafka_partition, q.kafka_offset, length(q.bytes) AS size_bytes, q.bytes, t.name AS tenant
FROM quarantined q
LEFT JOIN devices d ON d.device_key = q.device_key
LEFT JOIN tenants t ON t.tenant_id = q.tenant_id;

CREATE VIEW dead_letters WITH (security_invoker = true) AS
SELECT r.device, r.boot_epoch, r.seq, r.reason, r.detail, r.mqtt_topic, r.received_at,
       r.kafka_partition, r.kafka_offset, length(r.bytes) AS size_bytes, r.bytes, t.name AS tenant
FROM refused r
LEFT JOIN tenants t ON t.tenant_id = r.tenant_id;

-- The delivery ledger, from identities. accepted = the agent's own account; missing = accepted, yet neither stored, nor
-- reported as dropped, nor set aside with a reason. What came from a stranger under this device's name (a clone, a
-- foreign packet) explains nothing.
CREATE VIEW ledger WITH (security_invoker = true) AS
WITH epochs AS (
    SELECT device_key, boot_epoch FROM agent_status UNION SELECT device_key, boot_epoch FROM seen_ranges
), gaps AS (
    SELECT device_key, boot_epoch, range_agg(int8range(first_seq, last_seq, '[]')) AS ranges,
           sum(packets) AS packets, sum(samples) AS samples
    FROM agent_gaps GROUP BY 1, 2
), aside AS (
    SELECT device_key, boot_epoch, range_agg(int8range(seq, seq, '[]')) AS ranges, count(DISTINCT seq) AS packets
    FROM quarantined WHERE seq IS NOT NULL AND device_key IS NOT NULL AND reason NOT IN ('samples', 'identity_conflict', 'wrong_device')
    GROUP BY 1, 2
), letters AS (
    SELECT d.device_key, r.boot_epoch, range_agg(int8range(r.seq, r.seq, '[]')) AS ranges, count(DISTINCT r.seq) AS packets
    FROM refused r JOIN devices d ON d.device = r.device AND d.tenant_id = r.tenant_id
    WHERE r.seq > 0 AND r.boot_epoch > 0 AND r.reason NOT IN ('device_mismatch', 'tenant_mismatch') GROUP BY 1, 2
)
SELECT d.device, e.boot_epoch,
       greatest(coalesce(a.next_seq - 1, 0), coalesce(upper(s.ranges) - 1, 0)) AS accepted_packets,
       (a.account ->> 'accepted_samples')::bigint AS accepted_samples,
       coalesce(s.packets, 0) AS stored_packets, coalesce(s.samples, 0) AS stored_samples,
       coalesce(s.duplicates, 0) AS duplicates_suppressed,
       coalesce(g.packets, 0)::bigint AS dropped_packets, coalesce(g.samples, 0)::bigint AS dropped_samples,
       coalesce(q.packets, 0) AS quarantined_packets, coalesce(l.packets, 0) AS dead_lettered_packets,
       int8multirange(int8range(1, greatest(coalesce(a.next_seq, 1), coalesce(upper(s.ranges), 1))))
           - coalesce(s.ranges, '{}') - coalesce(g.ranges, '{}') - coalesce(q.ranges, '{}') - coalesce(l.ranges, '{}')
           AS missing,
       (a.account ->> 'oldest_unacked_ms')::bigint AS oldest_unacked_ms,
       a.received_at AS reported_at, t.name AS tenant
FROM epochs e
JOIN devices d ON d.device_key = e.device_key
JOIN tenants t ON t.tenant_id = d.tenant_id
LEFT JOIN agent_status a ON (a.device_key, a.boot_epoch) = (e.device_key, e.boot_epoch)
LEFT JOIN seen_ranges s ON (s.device_key, s.boot_epoch) = (e.device_key, e.boot_epoch)
LEFT JOIN gaps g ON (g.device_key, g.boot_epoch) = (e.device_key, e.boot_epoch)
LEFT JOIN aside q ON (q.device_key, q.boot_epoch) = (e.device_key, e.boot_epoch)
LEFT JOIN letters l ON (l.device_key, l.boot_epoch) = (e.device_key, e.boot_epoch);
