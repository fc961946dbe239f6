-- The epochs of a device are told one transaction after the other. Two that each stored a new epoch at the same time told
-- what each could see, and the later message, which the compacted topic keeps, lacked the other's epoch. The lock is per
-- device and table (a version in another schema waits for nobody), and held until the transaction ends; who comes second
-- looks only then, so its message holds both.
CREATE OR REPLACE FUNCTION tell_epochs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7310009, (hashint4extended(f.device_key, TG_RELID::bigint) & 2147483647)::integer)
    FROM (SELECT DISTINCT device_key FROM fresh ORDER BY device_key) AS f;
    INSERT INTO outbox (tenant_id, topic, kafka_key, kafka_value)
    SELECT d.tenant_id, 'epochs', d.device, known_epochs(d.device_key)
    FROM devices d WHERE d.device_key IN (SELECT device_key FROM fresh) ORDER BY d.device_key;
    RETURN NULL;
END $$;
