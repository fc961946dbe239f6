-- The book: who is registered, as rows that a lost store can be made from again. One message per tenant, asset, device,
-- and per device with all its bindings and with the owners of its contested epochs; on a compacted topic, by the outbox.

CREATE VIEW registry_book WITH (security_invoker = true) AS
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
FROM epoch_owners o GROUP BY device_key;

DO $$
DECLARE s text := quote_ident(current_schema());
BEGIN
    EXECUTE format('GRANT SELECT ON %s.registry_book TO fleetstream_sink', s);
    -- whose a contested epoch is, is decided by the sink; the store only knows it after that transaction
    EXECUTE format('CREATE FUNCTION %s.tell_owner() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value) SELECT tenant_id, ''book'', kafka_key, kafka_value
    FROM registry_book WHERE page = ''epoch_owners'' AND id = NEW.device_key;
    RETURN NULL;
END $f$', s);
END $$;
CREATE TRIGGER told AFTER INSERT OR UPDATE ON epoch_owners FOR EACH ROW EXECUTE FUNCTION tell_owner();
