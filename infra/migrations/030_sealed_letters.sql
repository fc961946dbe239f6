-- What was set aside may be a crash record's parcel: who, where and when of a crash, or what a record says. Reading that
-- goes through the custody log, so its bytes do not lie where a reader's or a tenant's SQL finds them: they move to a column
-- of their own as they come, and reason, size and hash stay. Taken for such bytes: a frame with the parcels' fingerprint,
-- and whatever came by a priority topic, since a damaged parcel no longer says what it is.

ALTER TABLE refused ADD COLUMN size_bytes integer, ADD COLUMN bytes_sha256 bytea, ADD COLUMN sealed bytea;
ALTER TABLE quarantined ADD COLUMN size_bytes integer, ADD COLUMN bytes_sha256 bytea, ADD COLUMN sealed bytea;

-- The archive leaves linkages out and keeps in their place 'FSWH' 01, the SHA-256 and the size (4 bytes, big endian) of what
-- it left out (stream_jobs/withheld.py): a rebuild from it knows both again.
CREATE FUNCTION seal_letter() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE came_by text := '';
BEGIN
    IF NEW.sealed IS NOT NULL THEN
        RETURN NEW;
    END IF;
    IF TG_TABLE_NAME = 'refused' THEN
        came_by := NEW.mqtt_topic;
    END IF;
    NEW.size_bytes := length(NEW.bytes);
    NEW.bytes_sha256 := sha256(NEW.bytes);
    IF length(NEW.bytes) = 41 AND substring(NEW.bytes FROM 1 FOR 5) = '\x4653574801'::bytea THEN
        NEW.bytes_sha256 := substring(NEW.bytes FROM 6 FOR 32);
        NEW.size_bytes := ('x' || encode(substring(NEW.bytes FROM 38 FOR 4), 'hex'))::bit(32)::integer;
        NEW.sealed := NEW.bytes;
    ELSIF substring(NEW.bytes FROM 3 FOR 8) = '\x4525bde54565ef9a'::bytea OR came_by LIKE '%/up/priority' THEN
        NEW.sealed := NEW.bytes;
    END IF;
    IF NEW.sealed IS NOT NULL THEN
        NEW.bytes := ''::bytea;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER seal BEFORE INSERT OR UPDATE OF bytes ON refused FOR EACH ROW EXECUTE FUNCTION seal_letter();
CREATE TRIGGER seal BEFORE INSERT OR UPDATE OF bytes ON quarantined FOR EACH ROW EXECUTE FUNCTION seal_letter();
UPDATE refused SET bytes = bytes;
UPDATE quarantined SET bytes = bytes;

ALTER TABLE refused ALTER COLUMN size_bytes SET NOT NULL, ALTER COLUMN bytes_sha256 SET NOT NULL;
ALTER TABLE quarantined ALTER COLUMN size_bytes SET NOT NULL, ALTER COLUMN bytes_sha256 SET NOT NULL;

-- Column by column for who writes SQL; the API keeps the whole table (it sends letters again, and shows no sealed bytes).
DO $$
DECLARE t text; readable text;
BEGIN
    FOREACH t IN ARRAY ARRAY['refused', 'quarantined'] LOOP
        SELECT string_agg(quote_ident(attname), ', ') INTO readable FROM pg_attribute
        WHERE attrelid = t::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'sealed';
        EXECUTE format('REVOKE SELECT ON %I FROM fleetstream_reader, fleetstream_tenant', t);
        EXECUTE format('GRANT SELECT (%s) ON %I TO fleetstream_reader, fleetstream_tenant', readable, t);
    END LOOP;
END $$;

CREATE OR REPLACE VIEW quarantine WITH (security_invoker = true) AS
SELECT d.device, q.boot_epoch, q.seq, q.reason, q.samples, q.detail, q.received_at, q.quarantined_at,
       q.topic, q.kafka_partition, q.kafka_offset, q.size_bytes, q.bytes, t.name AS tenant,
       encode(q.bytes_sha256, 'hex') AS sha256
FROM quarantined q
LEFT JOIN devices d ON d.device_key = q.device_key
LEFT JOIN tenants t ON t.tenant_id = q.tenant_id;

CREATE OR REPLACE VIEW dead_letters WITH (security_invoker = true) AS
SELECT r.device, r.boot_epoch, r.seq, r.reason, r.detail, r.mqtt_topic, r.received_at,
       r.kafka_partition, r.kafka_offset, r.size_bytes, r.bytes, t.name AS tenant,
       encode(r.bytes_sha256, 'hex') AS sha256
FROM refused r
LEFT JOIN tenants t ON t.tenant_id = r.tenant_id;

CREATE OR REPLACE VIEW letters WITH (security_invoker = true) AS
SELECT 'gateway' AS kept_by, r.topic_id, r.kafka_partition, r.kafka_offset, r.tenant_id, r.device, r.boot_epoch, r.seq,
       r.reason, r.detail, r.mqtt_topic AS came_by, r.received_at, NULL::integer AS samples, r.size_bytes, r.bytes
FROM refused r
UNION ALL
SELECT 'stream_job', q.topic_id, q.kafka_partition, q.kafka_offset, q.tenant_id, coalesce(d.device, ''), q.boot_epoch, q.seq,
       q.reason, q.detail::text, q.topic, coalesce(q.received_at, q.quarantined_at), q.samples, q.size_bytes, q.bytes
FROM quarantined q LEFT JOIN devices d ON d.device_key = q.device_key;
