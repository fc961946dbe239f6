-- The latest value of an asset whose device has moved to another one: latest_values holds one row per device and signal,
-- so the first reading on the new asset replaces the old one's. What the old asset had last stands in its newest window
-- within the binding (windows stay for years). Only ended bindings are looked at, and of these only signals whose latest
-- value lies elsewhere by now.

CREATE VIEW latest_before WITH (security_invoker = true) AS
SELECT b.asset_id, b.device_key, b.tenant_id, l.signal, w.last_ms AS measured_ms,
       scaled(w.last_units, s.exponent) AS val
FROM bindings b
JOIN latest_values l ON l.device_key = b.device_key AND NOT b.valid @> at_ms(l.measured_ms)
JOIN signals s ON s.signal = l.signal
CROSS JOIN LATERAL (
    SELECT w.last_units, w.last_ms FROM window_aggregates w
    WHERE w.device_key = b.device_key AND w.signal = l.signal AND w.width_s = 10
        AND w.starts_at < upper(b.valid) AND b.valid @> at_ms(w.last_ms)
    ORDER BY w.starts_at DESC LIMIT 1) w
WHERE NOT upper_inf(b.valid);

CREATE OR REPLACE VIEW latest WITH (security_invoker = true) AS
SELECT a.name AS asset, s.path AS signal, at_ms(l.measured_ms) AS measured_at, nullif(l.val, 'NaN') AS value,
       l.quality, s.unit, l.received_at, d.device, t.name AS tenant
FROM latest_values l
JOIN signals s ON s.signal = l.signal
JOIN devices d ON d.device_key = l.device_key
JOIN tenants t ON t.tenant_id = l.tenant_id
LEFT JOIN bindings b ON b.device_key = l.device_key AND b.valid @> at_ms(l.measured_ms)
LEFT JOIN assets a ON a.asset_id = b.asset_id
UNION ALL
SELECT a.name, s.path, at_ms(l.measured_ms), l.val, 0::smallint, s.unit, NULL, d.device, t.name
FROM latest_before l
JOIN assets a ON a.asset_id = l.asset_id
JOIN signals s ON s.signal = l.signal
JOIN devices d ON d.device_key = l.device_key
JOIN tenants t ON t.tenant_id = l.tenant_id;

DO $$
DECLARE s text := quote_ident(current_schema());
BEGIN
    EXECUTE format('GRANT SELECT ON %s.latest_before TO fleetstream_sink, fleetstream_api, fleetstream_reader,'
        ' fleetstream_tenant', s);
END $$;
