-- The delivery ledger told in full, by identity: what the agent still holds, what it knows to be confirmed, what it
-- dropped, what retention has taken, and every hole that grew older than a limit.

-- Packets that were stored and whose rows retention has dropped since: written by the transaction that drops them, so
-- that "stored" never depends on how long rows are kept.
CREATE TABLE expired_packets (
    device_key integer NOT NULL,
    boot_epoch bigint NOT NULL,
    tenant_id  integer NOT NULL,
    ranges     int8multirange NOT NULL,
    PRIMARY KEY (device_key, boot_epoch)
);

-- Packets that another consumer than ingest has stored (crash records): it adds their numbers in its own transaction.
CREATE TABLE evidence_ranges (
    device_key integer NOT NULL,
    boot_epoch bigint NOT NULL,
    tenant_id  integer NOT NULL,
    ranges     int8multirange NOT NULL,
    PRIMARY KEY (device_key, boot_epoch)
);

-- Note the identities of a table of packet rows before its rows go; to be called in the transaction that drops them.
CREATE FUNCTION note_expired(gone regclass, before timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO expired_packets AS e (device_key, boot_epoch, tenant_id, ranges)
        SELECT device_key, boot_epoch, min(tenant_id), range_agg(int8range(seq, seq, ''[]'')) FROM %s
        WHERE received_at < $1 GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (device_key, boot_epoch) DO UPDATE SET ranges = e.ranges + excluded.ranges', gone) USING before;
END $$;

-- Holes in the ledger that were seen twice, and what became of them. One row per hole: it opens once, when it is older
-- than the limit, and ends once. numbers: all that it ever covered; missing: what is missing of them now.
CREATE TABLE ledger_gaps (
    gap_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    device_key integer NOT NULL REFERENCES devices,
    boot_epoch bigint NOT NULL,
    tenant_id  integer NOT NULL REFERENCES tenants,
    numbers    int8multirange NOT NULL,
    missing    int8multirange NOT NULL,
    since      timestamptz NOT NULL,
    opened_at  timestamptz,
    ended_at   timestamptz,
    outcome    text CHECK (outcome IN ('stored', 'explained')),
    CHECK ((ended_at IS NULL) = (outcome IS NULL)),
    CHECK ((ended_at IS NOT NULL) = isempty(missing))
);
CREATE INDEX ledger_gaps_standing ON ledger_gaps (device_key, boot_epoch) WHERE ended_at IS NULL;
CREATE INDEX ledger_gaps_tenant ON ledger_gaps (tenant_id, gap_id);

CREATE FUNCTION numbers_in(ranges int8multirange) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(ranges) AS r);

-- What agents dropped, range by range, in words. packets and samples are NULL where the agent could not know them
-- (a damaged spool puts every number that it may have held in doubt).
CREATE VIEW drops WITH (security_invoker = true) AS
SELECT d.device, g.boot_epoch, g.first_seq, g.last_seq,
       CASE g.reason WHEN 1 THEN 'spool_bytes' WHEN 2 THEN 'spool_age' WHEN 3 THEN 'corrupt_spool' WHEN 4 THEN 'disk_full'
           ELSE 'reason ' || g.reason END AS reason,
       CASE g.retention WHEN 0 THEN 'bulk' WHEN 1 THEN 'standard' WHEN 2 THEN 'personal' WHEN 3 THEN 'safety'
           WHEN 9 THEN 'priority' ELSE 'class ' || g.retention END AS class,
       CASE WHEN g.reason <> 3 OR g.packets > 0 THEN g.packets END AS packets,
       CASE WHEN g.reason <> 3 OR g.packets > 0 THEN g.samples END AS samples,
       g.received_at AS reported_at, g.reported_seq, t.name AS tenant
FROM agent_gaps g JOIN devices d ON d.device_key = g.device_key JOIN tenants t ON t.tenant_id = g.tenant_id;

CREATE VIEW gaps WITH (security_invoker = true) AS
SELECT d.device, g.boot_epoch,
       CASE WHEN g.outcome = 'stored' THEN 'closed' WHEN g.outcome IS NOT NULL THEN g.outcome
           WHEN g.opened_at IS NOT NULL THEN 'open' ELSE 'waiting' END AS state,
       numbers_in(g.missing) AS missing_packets, g.missing, lower(g.numbers) AS first_seq, upper(g.numbers) - 1 AS last_seq,
       g.since, g.opened_at, g.ended_at, g.gap_id, t.name AS tenant
FROM ledger_gaps g JOIN devices d ON d.device_key = g.device_key JOIN tenants t ON t.tenant_id = g.tenant_id;

-- The ledger. Everything is a set of numbers: accepted = 1 .. the highest number that anybody knows of;
-- dropped = reported as dropped and nowhere else; missing = accepted, and neither stored, nor dropped, nor set aside.
-- held = what the agent's newest heartbeat says is still in its spool (NULL: it has not said); confirmed = accepted and
-- no longer held, dropped or refused; on_its_way = missing and no longer held: in the log, or lost.
CREATE OR REPLACE VIEW ledger WITH (security_invoker = true) AS
WITH newest AS (
    SELECT DISTINCT ON (device_key) device_key, boot_epoch, received_at, account,
           jsonb_typeof(account -> 'held') = 'array' AS tells
    FROM agent_status ORDER BY device_key, boot_epoch DESC
), held AS (
    SELECT n.device_key, (h ->> 0)::bigint AS boot_epoch,
           range_agg(int8range((h ->> 1)::bigint, (h ->> 2)::bigint, '[]')) AS ranges
    FROM newest n
    CROSS JOIN LATERAL jsonb_array_elements(CASE WHEN n.tells THEN n.account -> 'held' ELSE '[]' END) AS h
    GROUP BY 1, 2
), epochs AS (
    SELECT device_key, boot_epoch FROM agent_status
    UNION SELECT device_key, boot_epoch FROM seen_ranges
    UNION SELECT device_key, boot_epoch FROM held
    UNION SELECT device_key, boot_epoch FROM evidence_ranges
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
), sets AS (
    SELECT e.device_key, e.boot_epoch, greatest(a.next_seq, upper(s.ranges), upper(h.ranges), upper(v.ranges), 1) AS next_seq,
           coalesce(s.ranges, '{}') + coalesce(v.ranges, '{}') AS seen, coalesce(q.ranges, '{}') AS aside, coalesce(l.ranges, '{}') AS letters,
           coalesce(h.ranges, '{}') AS held, coalesce(g.ranges, '{}') AS told,
           n.tells AND e.boot_epoch <= n.boot_epoch AS tells, n.boot_epoch = e.boot_epoch AS is_newest,
           n.received_at AS heard_at, n.account AS newest_account, a.account, a.received_at,
           numbers_in(v.ranges) AS evidence_packets, s.packets AS stored_packets, s.samples AS stored_samples, s.duplicates,
           g.packets AS told_packets, g.samples AS told_samples, q.packets AS aside_packets, l.packets AS letter_packets
    FROM epochs e
    LEFT JOIN newest n ON n.device_key = e.device_key
    LEFT JOIN agent_status a ON (a.device_key, a.boot_epoch) = (e.device_key, e.boot_epoch)
    LEFT JOIN seen_ranges s ON (s.device_key, s.boot_epoch) = (e.device_key, e.boot_epoch)
    LEFT JOIN evidence_ranges v ON (v.device_key, v.boot_epoch) = (e.device_key, e.boot_epoch)
    LEFT JOIN held h ON (h.device_key, h.boot_epoch) = (e.device_key, e.boot_epoch)
    LEFT JOIN gaps g ON (g.device_key, g.boot_epoch) = (e.device_key, e.boot_epoch)
    LEFT JOIN aside q ON (q.device_key, q.boot_epoch) = (e.device_key, e.boot_epoch)
    LEFT JOIN letters l ON (l.device_key, l.boot_epoch) = (e.device_key, e.boot_epoch)
), parts AS (
    SELECT *, int8multirange(int8range(1, next_seq)) - seen - aside - letters - dropped AS missing
    FROM sets CROSS JOIN LATERAL (SELECT told - seen - aside - letters - held AS dropped) AS x
)
SELECT d.device, p.boot_epoch,
       p.next_seq - 1 AS accepted_packets,
       (p.account ->> 'accepted_samples')::bigint AS accepted_samples,
       coalesce(p.stored_packets, 0) AS stored_packets, coalesce(p.stored_samples, 0) AS stored_samples,
       coalesce(p.duplicates, 0) AS duplicates_suppressed,
       numbers_in(p.dropped) AS dropped_packets, coalesce(p.told_samples, 0)::bigint AS dropped_samples,
       coalesce(p.aside_packets, 0) AS quarantined_packets, coalesce(p.letter_packets, 0) AS dead_lettered_packets,
       p.missing,
       nullif((p.account ->> 'oldest_unacked_ms')::bigint, 0) AS oldest_unacked_ms,
       p.received_at AS reported_at, t.name AS tenant,
       CASE WHEN p.tells THEN numbers_in(int8multirange(int8range(1, p.next_seq)) - p.held - p.dropped - p.letters) END
           AS confirmed_packets,
       CASE WHEN p.tells THEN numbers_in(p.held) END AS held_packets,
       CASE WHEN p.tells THEN p.missing - p.held END AS on_its_way,
       p.dropped, coalesce(p.told_packets, 0)::bigint AS dropped_reported_packets,
       CASE WHEN p.is_newest THEN (p.newest_account ->> 'not_accepted_samples')::bigint END AS not_accepted_samples,
       CASE WHEN p.is_newest AND (p.newest_account ->> 'oldest_unacked_ms')::bigint > 0
           THEN (p.newest_account ->> 'oldest_unacked_ms')::bigint
               + (extract(epoch FROM greatest(now() - p.heard_at, interval '0')) * 1000)::bigint END AS oldest_waiting_ms,
       p.heard_at, coalesce(p.evidence_packets, 0) AS evidence_packets
FROM parts p
JOIN devices d ON d.device_key = p.device_key
JOIN tenants t ON t.tenant_id = d.tenant_id;

DO $$
DECLARE t text; s text := quote_ident(current_schema());
BEGIN
    FOREACH t IN ARRAY ARRAY['expired_packets', 'evidence_ranges', 'ledger_gaps']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I USING (tenant_id = '
            'nullif(current_setting(''fleetstream.tenant_id'', true), '''')::integer)', t);
        EXECUTE format('CREATE POLICY all_tenants ON %I FOR SELECT TO fleetstream_reader USING (true)', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s.%I TO fleetstream_sink', s, t);
        EXECUTE format('GRANT SELECT ON %s.%I TO fleetstream_api, fleetstream_reader, fleetstream_tenant', s, t);
    END LOOP;
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %s TO fleetstream_sink', s);
    EXECUTE format('GRANT SELECT ON %s.drops, %s.gaps TO fleetstream_api, fleetstream_reader, fleetstream_tenant', s, s);
    EXECUTE format('GRANT SELECT ON %s.drops, %s.gaps, %s.ledger TO fleetstream_sink', s, s, s);
END $$;
