-- Groups of assets, and a whole fleet enrolled from one file: all of it or nothing, and the same file again changes nothing.

CREATE TABLE asset_groups (
    group_id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  integer NOT NULL REFERENCES tenants,
    name       text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, name)
);
CREATE TABLE asset_group_members (
    group_id  integer NOT NULL REFERENCES asset_groups ON DELETE CASCADE,
    asset_id  integer NOT NULL REFERENCES assets,
    tenant_id integer NOT NULL REFERENCES tenants,
    PRIMARY KEY (group_id, asset_id)
);
CREATE INDEX asset_group_members_asset ON asset_group_members (asset_id);

-- Groups belong to the book, from which a lost store is made again.
CREATE OR REPLACE VIEW registry_book WITH (security_invoker = true) AS
SELECT 'tenants' AS page, tenant_id AS id, 'tenants/' || tenant_id AS kafka_key, tenant_id, convert_to(
    jsonb_build_object('table', 'tenants', 'rows', jsonb_build_array(to_jsonb(t)))::text, 'UTF8') AS kafka_value
FROM tenants t
UNION ALL
SELECT 'assets', asset_id, 'assets/' || asset_id, tenant_id, convert_to(
    jsonb_build_object('table', 'assets', 'rows', jsonb_build_array(to_jsonb(a)))::text, 'UTF8') FROM assets a
UNION ALL
SELECT 'devices', device_key, 'devices/' || device_key, tenant_id, convert_to(
    jsonb_build_object('table', 'devices', 'rows', jsonb_build_array(to_jsonb(d)))::text, 'UTF8') FROM devices d
UNION ALL
SELECT 'bindings', device_key, 'bindings/' || device_key, min(tenant_id), convert_to(
    jsonb_build_object('table', 'bindings', 'rows', jsonb_agg(to_jsonb(b) ORDER BY lower(b.valid)))::text, 'UTF8')
FROM bindings b GROUP BY device_key
UNION ALL
SELECT 'epoch_owners', device_key, 'epoch_owners/' || device_key, min(tenant_id), convert_to(
    jsonb_build_object('table', 'epoch_owners', 'rows', jsonb_agg(to_jsonb(o) ORDER BY o.boot_epoch))::text, 'UTF8')
FROM epoch_owners o GROUP BY device_key
UNION ALL
SELECT 'asset_groups', group_id, 'asset_groups/' || group_id, tenant_id, convert_to(
    jsonb_build_object('table', 'asset_groups', 'rows', jsonb_build_array(to_jsonb(g)))::text, 'UTF8') FROM asset_groups g
UNION ALL
SELECT 'asset_group_members', group_id, 'asset_group_members/' || group_id, min(tenant_id), convert_to(
    jsonb_build_object('table', 'asset_group_members', 'rows', jsonb_agg(to_jsonb(m) ORDER BY m.asset_id))::text, 'UTF8')
FROM asset_group_members m GROUP BY group_id;

-- Write pages of the book to the outbox as they stand now; a page that is gone becomes a tombstone.
CREATE FUNCTION tell_book(of_tenant integer, keys text[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
    SELECT of_tenant, 'book', k.key, b.kafka_value
    FROM (SELECT DISTINCT key FROM unnest(keys) AS u (key)) AS k LEFT JOIN registry_book b ON b.kafka_key = k.key
    ORDER BY k.key
$$;

-- Changes of a tenant's fleet go one after the other, so that what the book is told last is what holds.
CREATE FUNCTION lock_fleet(of_tenant integer) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(7310010, of_tenant)
$$;

-- rows: [{line, device, asset, asset_kind, device_kind, since, latitude, longitude, groups}], checked for form before.
-- Returns what was made, changed and left alone, and errors by line; with errors, or in a dry run, nothing is kept.
CREATE FUNCTION import_fleet(of_tenant integer, rows jsonb, dry_run boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    bad       jsonb;
    counts    jsonb;
    assets_in integer[];
    assets_up integer[];
    devices_in integer[];
    devices_up integer[];
    bound     integer[];
    moved     integer[];
    joined    integer[];
    new_groups integer[];
BEGIN
    PERFORM lock_fleet(of_tenant);
    BEGIN
        WITH r AS (SELECT DISTINCT ON (asset) * FROM jsonb_to_recordset(rows) AS x (line integer, asset text, asset_kind text,
            latitude double precision, longitude double precision) ORDER BY asset, line),
        put AS (
            INSERT INTO assets AS a (tenant_id, name, kind, latitude, longitude)
            SELECT of_tenant, asset, coalesce(asset_kind, 'other'), latitude, longitude FROM r ORDER BY asset
            ON CONFLICT (tenant_id, name) DO NOTHING RETURNING asset_id),
        changed AS (
            UPDATE assets a SET kind = coalesce(r.asset_kind, a.kind), latitude = coalesce(r.latitude, a.latitude),
                longitude = coalesce(r.longitude, a.longitude)
            FROM r WHERE a.tenant_id = of_tenant AND a.name = r.asset AND (a.kind, a.latitude, a.longitude) IS DISTINCT FROM
                (coalesce(r.asset_kind, a.kind), coalesce(r.latitude, a.latitude), coalesce(r.longitude, a.longitude))
            RETURNING a.asset_id)
        SELECT (SELECT coalesce(array_agg(asset_id), '{}') FROM put), (SELECT coalesce(array_agg(asset_id), '{}') FROM changed)
        INTO assets_in, assets_up;

        WITH r AS (SELECT * FROM jsonb_to_recordset(rows) AS x (device text, device_kind text)),
        put AS (
            INSERT INTO devices (device, tenant_id, kind)
            SELECT device, of_tenant, coalesce(device_kind, 'device') FROM r ORDER BY device
            ON CONFLICT (device) DO NOTHING RETURNING device_key),
        changed AS (
            UPDATE devices d SET kind = coalesce(r.device_kind, d.kind), revoked_at = NULL
            FROM r WHERE d.tenant_id = of_tenant AND d.device = r.device
                AND (d.kind <> coalesce(r.device_kind, d.kind) OR d.revoked_at IS NOT NULL)
            RETURNING d.device_key)
        SELECT (SELECT coalesce(array_agg(device_key), '{}') FROM put), (SELECT coalesce(array_agg(device_key), '{}') FROM changed)
        INTO devices_in, devices_up;

        -- what stands in the way: a name that another tenant has, a binding that begins after the new one or is not dated
        SELECT coalesce(jsonb_agg(jsonb_build_object('line', e.line, 'column', e.col, 'reason', e.reason, 'detail', e.detail)
            ORDER BY e.line), '[]') INTO bad
        FROM (
            SELECT r.line, 'device' AS col, 'device_taken' AS reason, 'this name belongs to a device elsewhere' AS detail
            FROM jsonb_to_recordset(rows) AS r (line integer, device text)
            WHERE NOT EXISTS (SELECT FROM devices d WHERE d.device = r.device AND d.tenant_id = of_tenant)
            UNION ALL
            SELECT r.line, 'since', 'bad_since', 'the device measured another asset; say from when, after its last change, it measures this one'
            FROM jsonb_to_recordset(rows) AS r (line integer, device text, asset text, since timestamptz)
            JOIN devices d ON d.device = r.device AND d.tenant_id = of_tenant
            JOIN assets a ON a.name = r.asset AND a.tenant_id = of_tenant
            WHERE NOT EXISTS (SELECT FROM bindings b WHERE b.device_key = d.device_key AND b.asset_id = a.asset_id AND upper_inf(b.valid))
              AND EXISTS (SELECT FROM bindings b WHERE b.device_key = d.device_key
                  AND (r.since IS NULL OR r.since <= coalesce(lower(b.valid), '-infinity')
                       OR (NOT upper_inf(b.valid) AND r.since < upper(b.valid))))
        ) AS e;

        IF bad = '[]' THEN
            WITH r AS (
                SELECT d.device_key, a.asset_id, x.since
                FROM jsonb_to_recordset(rows) AS x (device text, asset text, since timestamptz)
                JOIN devices d ON d.device = x.device AND d.tenant_id = of_tenant
                JOIN assets a ON a.name = x.asset AND a.tenant_id = of_tenant),
            ended AS (
                UPDATE bindings b SET valid = tstzrange(lower(b.valid), r.since) FROM r
                WHERE b.device_key = r.device_key AND upper_inf(b.valid) AND b.asset_id <> r.asset_id RETURNING b.device_key)
            SELECT coalesce(array_agg(device_key), '{}') INTO moved FROM ended;
            WITH r AS (
                SELECT d.device_key, a.asset_id, x.since
                FROM jsonb_to_recordset(rows) AS x (device text, asset text, since timestamptz)
                JOIN devices d ON d.device = x.device AND d.tenant_id = of_tenant
                JOIN assets a ON a.name = x.asset AND a.tenant_id = of_tenant),
            put AS (
                INSERT INTO bindings (device_key, asset_id, tenant_id, valid)
                SELECT r.device_key, r.asset_id, of_tenant, tstzrange(r.since, NULL) FROM r
                WHERE NOT EXISTS (SELECT FROM bindings b WHERE b.device_key = r.device_key AND upper_inf(b.valid))
                ORDER BY 1 RETURNING device_key)
            SELECT coalesce(array_agg(device_key), '{}') INTO bound FROM put;
            WITH put AS (
                INSERT INTO asset_groups (tenant_id, name)
                SELECT DISTINCT of_tenant, g.name FROM jsonb_to_recordset(rows) AS r (groups text[]), unnest(r.groups) AS g (name)
                ORDER BY 2 ON CONFLICT DO NOTHING RETURNING group_id)
            SELECT coalesce(array_agg(group_id), '{}') INTO new_groups FROM put;
            WITH put AS (
                INSERT INTO asset_group_members (group_id, asset_id, tenant_id)
                SELECT DISTINCT g.group_id, a.asset_id, of_tenant
                FROM jsonb_to_recordset(rows) AS r (asset text, groups text[]) CROSS JOIN LATERAL unnest(r.groups) AS u (name)
                JOIN asset_groups g ON g.tenant_id = of_tenant AND g.name = u.name
                JOIN assets a ON a.tenant_id = of_tenant AND a.name = r.asset
                ORDER BY 1, 2 ON CONFLICT DO NOTHING RETURNING group_id)
            SELECT coalesce(array_agg(group_id), '{}') INTO joined FROM put;
            INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
            SELECT of_tenant, 'registry', d.device, convert_to(json_build_object('device', d.device, 'device_key', d.device_key,
                'tenant', t.name, 'tenant_id', t.tenant_id, 'kind', d.kind)::text, 'UTF8')
            FROM devices d JOIN tenants t USING (tenant_id)
            WHERE d.device_key = ANY(devices_in || devices_up) ORDER BY d.device_key;
            PERFORM tell_book(of_tenant, ARRAY(
                SELECT 'assets/' || u.id FROM unnest(assets_in || assets_up) AS u (id)
                UNION ALL SELECT 'devices/' || u.id FROM unnest(devices_in || devices_up) AS u (id)
                UNION ALL SELECT 'bindings/' || u.id FROM unnest(bound || moved) AS u (id)
                UNION ALL SELECT 'asset_groups/' || u.id FROM unnest(new_groups) AS u (id)
                UNION ALL SELECT 'asset_group_members/' || u.id FROM unnest(joined) AS u (id)));
        END IF;
        counts := jsonb_build_object('lines', jsonb_array_length(rows),
            'assets_made', cardinality(assets_in), 'assets_changed', cardinality(assets_up),
            'devices_made', cardinality(devices_in), 'devices_changed', cardinality(devices_up),
            'bindings_made', coalesce(cardinality(bound), 0) - coalesce(cardinality(moved), 0),
            'bindings_moved', coalesce(cardinality(moved), 0), 'groups_made', coalesce(cardinality(new_groups), 0),
            'members_added', coalesce(cardinality(joined), 0));
        IF dry_run OR bad <> '[]' THEN
            RAISE EXCEPTION USING ERRCODE = 'FS001', MESSAGE = 'taken back';
        END IF;
    EXCEPTION WHEN SQLSTATE 'FS001' THEN
        NULL;  -- the block's writes are undone, its variables stay
    END;
    RETURN jsonb_build_object('errors', bad, 'counts', counts);
END $$;

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['asset_groups', 'asset_group_members'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I USING (tenant_id = (SELECT own_tenant_id()))', t);
        EXECUTE format('CREATE POLICY all_tenants ON %I FOR SELECT TO fleetstream_reader USING (true)', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO fleetstream_sink', t);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON %I TO fleetstream_api', t);
        EXECUTE format('GRANT SELECT ON %I TO fleetstream_reader, fleetstream_tenant', t);
    END LOOP;
END $$;
-- Bound to the tenant of the transaction by row-level security, as everything that the API does.
GRANT INSERT ON assets, devices, bindings TO fleetstream_api;
GRANT UPDATE (kind, latitude, longitude) ON assets TO fleetstream_api;
GRANT UPDATE (kind, revoked_at) ON devices TO fleetstream_api;
GRANT UPDATE (valid) ON bindings TO fleetstream_api;
GRANT SELECT ON registry_book TO fleetstream_api;
