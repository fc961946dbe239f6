-- The feed of packets in the order in which the store took them. A number given out by a sequence does not follow the order
-- of commits: a reader that has passed 7 may later meet 6. So each packet keeps the number of the transaction that stored
-- it, and readers stop before the oldest transaction that still runs: below it nothing can appear any more.
-- Packets stored before this migration have no number and are not in the feed.

ALTER TABLE packet_rows ADD COLUMN stored_by bigint;
ALTER TABLE packet_rows ALTER COLUMN stored_by SET DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX packets_feed ON packet_rows (tenant_id, stored_by);

-- One row: which feed this is. A rebuilt version of the tables has other transactions and so another feed; a cursor names
-- the feed it belongs to.
CREATE TABLE packet_feed (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    feed_id bigint NOT NULL DEFAULT (random() * 9007199254740991)::bigint
);
INSERT INTO packet_feed DEFAULT VALUES;

-- Packets of transactions below gone_to may have left the rows (for blocks, or by retention). Written by the transaction
-- that takes them away, so a reader either gets them or learns that it came too late.
CREATE TABLE feed_horizons (
    tenant_id integer PRIMARY KEY,
    gone_to   bigint NOT NULL
);

CREATE OR REPLACE FUNCTION note_expired(gone regclass, before timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO expired_packets AS e (device_key, boot_epoch, tenant_id, ranges)
        SELECT device_key, boot_epoch, min(tenant_id), range_agg(int8range(seq, seq, ''[]'')) FROM %s
        WHERE received_at < $1 GROUP BY 1, 2 ORDER BY 1, 2
        ON CONFLICT (device_key, boot_epoch) DO UPDATE SET ranges = e.ranges + excluded.ranges', gone) USING before;
    EXECUTE format('INSERT INTO feed_horizons AS f (tenant_id, gone_to)
        SELECT tenant_id, max(stored_by) + 1 FROM %s WHERE received_at < $1 AND stored_by IS NOT NULL GROUP BY 1 ORDER BY 1
        ON CONFLICT (tenant_id) DO UPDATE SET gone_to = greatest(f.gone_to, excluded.gone_to)', gone) USING before;
END $$;

ALTER TABLE feed_horizons ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON feed_horizons USING (tenant_id = (SELECT own_tenant_id()));
CREATE POLICY all_tenants ON feed_horizons FOR SELECT TO fleetstream_reader USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON packet_feed, feed_horizons TO fleetstream_sink;
GRANT SELECT ON packet_feed, feed_horizons TO fleetstream_api, fleetstream_reader;
