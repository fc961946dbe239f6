-- What the tenants' view `latest` asks, granted after 012_tenant_logins.sql took everything away.

DO $$
BEGIN
    EXECUTE format('GRANT SELECT ON %I.latest_before TO fleetstream_tenant', current_schema());
END $$;
