-- Who may do what. Roles (contracts.tables.ROLES) exist already. The sink bypasses row-level security and checks
-- tenants itself; the API is bound to the tenant of its transaction; the reader sees all tenants, read-only; a tenant's
-- own SQL role is bound to its tenant by its login (fleetstream.tenant_id set on the role).

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['tenants', 'assets', 'devices', 'bindings', 'api_keys', 'seen_ranges', 'packet_rows',
        'window_aggregates', 'window_publications', 'latest_values', 'agent_gaps', 'agent_status', 'quarantined',
        'refused', 'archive_files']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I USING (tenant_id = '
            'nullif(current_setting(''fleetstream.tenant_id'', true), '''')::integer)', t);
        EXECUTE format('CREATE POLICY all_tenants ON %I FOR SELECT TO fleetstream_reader USING (true)', t);
    END LOOP;
END $$;

DO $$
DECLARE s text := quote_ident(current_schema());
BEGIN
    EXECUTE 'GRANT USAGE ON SCHEMA ' || s || ' TO fleetstream_sink, fleetstream_api, fleetstream_reader, fleetstream_tenant';
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ' || s || ' TO fleetstream_sink';
    EXECUTE 'GRANT USAGE ON ALL SEQUENCES IN SCHEMA ' || s || ' TO fleetstream_sink, fleetstream_api';
    EXECUTE 'GRANT SELECT ON ALL TABLES IN SCHEMA ' || s || ' TO fleetstream_api, fleetstream_reader, fleetstream_tenant';
    EXECUTE 'REVOKE ALL ON ' || s || '.api_keys, ' || s || '.outbox FROM fleetstream_reader, fleetstream_tenant';
    EXECUTE 'GRANT INSERT, UPDATE ON ' || s || '.outbox TO fleetstream_api';
    EXECUTE 'GRANT DELETE ON ' || s || '.outbox TO fleetstream_sink';
END $$;

-- A key names its tenant, so it is looked up before a tenant is known.
CREATE POLICY key_lookup ON api_keys FOR SELECT TO fleetstream_api USING (true);
