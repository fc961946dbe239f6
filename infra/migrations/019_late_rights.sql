-- Tenants read what stands behind the views of late data. The ledger does not call a packet set aside of which only
-- single readings came too late: it is stored.

DO $$
DECLARE s text := quote_ident(current_schema()); v text;
BEGIN
    EXECUTE format('GRANT SELECT ON %s.finality, %s.too_late_readings, %s.epoch_owners, %s.publications, %s.too_late'
        ' TO fleetstream_tenant', s, s, s, s, s);
    v := pg_get_viewdef('ledger'::regclass, true);
    IF position('''identity_conflict''' IN v) = 0 THEN
        RAISE EXCEPTION 'the ledger no longer names the reasons that explain no missing packet; nothing was changed';
    END IF;
    EXECUTE 'CREATE OR REPLACE VIEW ledger WITH (security_invoker = true) AS '
        || replace(v, '''identity_conflict''', '''too_late''::text, ''identity_conflict''');
END $$;
