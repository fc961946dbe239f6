-- Tenants' own SQL logins. A session setting is no boundary for a login that may SET it, so for members of
-- fleetstream_tenant the tenant follows from who logged in (session_user), which neither SET nor SET ROLE changes.

CREATE TABLE sql_logins (
    login      name PRIMARY KEY,
    tenant_id  integer NOT NULL UNIQUE REFERENCES tenants,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Whose rows this session may see; NULL: nobody's. The API's role has no login here and is bound by its transaction's
-- setting. A member of fleetstream_tenant without a row sees nothing, whatever it sets. SECURITY DEFINER: no tenant
-- reads the mapping itself; session_user is not changed by it.
CREATE FUNCTION own_tenant_id() RETURNS integer LANGUAGE sql STABLE SECURITY DEFINER PARALLEL SAFE
    RETURN CASE
        WHEN EXISTS (SELECT FROM sql_logins l WHERE l.login = session_user)
            THEN (SELECT l.tenant_id FROM sql_logins l WHERE l.login = session_user)
        WHEN EXISTS (SELECT FROM pg_roles r WHERE r.rolname = session_user AND NOT r.rolsuper
                     AND pg_has_role(r.oid, 'fleetstream_tenant', 'MEMBER')) THEN NULL
        ELSE nullif(current_setting('fleetstream.tenant_id', true), '')::integer END;

-- The subquery is evaluated once per statement, not once per row.
DO $$
DECLARE t text;
BEGIN
    FOR t IN SELECT tablename FROM pg_policies WHERE schemaname = current_schema() AND policyname = 'own_tenant'
    LOOP
        EXECUTE format('ALTER POLICY own_tenant ON %I USING (tenant_id = (SELECT own_tenant_id()))', t);
    END LOOP;
END $$;

-- Tenants read the stable views and what stands behind them; nothing about the fleet as a whole (offsets, archive,
-- migrations, keys, outbox).
DO $$
DECLARE s text := quote_ident(current_schema()); t text;
BEGIN
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %s FROM fleetstream_tenant', s);
    FOREACH t IN ARRAY ARRAY['tenants', 'assets', 'devices', 'bindings', 'signals', 'seen_ranges', 'packet_rows',
        'window_aggregates', 'window_publications', 'latest_values', 'agent_gaps', 'agent_status', 'quarantined',
        'refused', 'expired_packets', 'evidence_ranges', 'ledger_gaps',
        'readings', 'windows', 'packets', 'latest', 'late', 'quarantine', 'dead_letters', 'ledger', 'drops', 'gaps']
    LOOP
        EXECUTE format('GRANT SELECT ON %s.%I TO fleetstream_tenant', s, t);
    END LOOP;
END $$;
