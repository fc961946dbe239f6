-- What fleet questions need: what is known of a vehicle beside its name, and strips of a day that are read in its place.

-- The fleet under which a vehicle is counted is one; NULL: nobody said. Capacities and the maker's consumption are the
-- vehicle's own, so that "90 % loaded" and "more than promised" have a meaning.
ALTER TABLE assets
    ADD COLUMN fleet text CHECK (length(fleet) BETWEEN 1 AND 200),
    ADD COLUMN model text CHECK (length(model) BETWEEN 1 AND 200),
    ADD COLUMN driver text CHECK (length(driver) BETWEEN 1 AND 200),
    ADD COLUMN load_capacity_kg double precision CHECK (load_capacity_kg > 0 AND load_capacity_kg < 'Infinity'),
    ADD COLUMN fuel_capacity_l double precision CHECK (fuel_capacity_l > 0 AND fuel_capacity_l < 'Infinity'),
    ADD COLUMN nominal_l_100km double precision CHECK (nominal_l_100km > 0 AND nominal_l_100km < 'Infinity');
CREATE INDEX assets_fleet ON assets (tenant_id, fleet);

-- A mark holds in ten minutes when the mean of the signal's readings in them is above a limit (or reaches it, where
-- `reaches`): sum * per > readings * threshold, in units of the signal's resolution, so that nothing is rounded.
CREATE TABLE marks (
    mark      smallint PRIMARY KEY,
    name      text NOT NULL UNIQUE,
    signal    smallint NOT NULL,
    per       integer NOT NULL CHECK (per > 0),
    threshold bigint NOT NULL,
    reaches   boolean NOT NULL,
    text      text NOT NULL
);
INSERT INTO marks (mark, name, signal, per, threshold, reaches, text) VALUES
    (1, 'driving', 1, 1, 100, false, 'Vehicle.Speed above 1 km/h in the mean'),
    (2, 'engine_running', 26, 2, 1, true, 'the engine runs in at least half of the readings'),
    (3, 'lamp_on', 102, 2, 1, true, 'the malfunction lamp is on in at least half of the readings');

-- One row per device, mark and UTC day, one character per ten minutes: 1 it held, 0 it did not, . nothing was told.
CREATE TABLE day_strips (
    device_key integer NOT NULL,
    mark       smallint NOT NULL,
    day        date NOT NULL,
    tenant_id  integer NOT NULL,
    strip      text COLLATE "C" NOT NULL CHECK (length(strip) = 144),
    PRIMARY KEY (device_key, mark, day)
);
CREATE INDEX day_strips_day ON day_strips (mark, day) INCLUDE (device_key);

-- Draws the six characters of one hour from its minutes. The schema is told, because a version's tables are filled from
-- connections whose search path is another.
CREATE FUNCTION draw_hour(of_schema text, of_device integer, of_signal smallint, of_tenant integer, hour timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE place integer := extract(hour FROM hour AT TIME ZONE 'UTC')::integer * 6 + 1;
BEGIN
    EXECUTE format($q$
        INSERT INTO %1$I.day_strips AS s (device_key, mark, day, tenant_id, strip)
        SELECT $1, m.mark, ($4 AT TIME ZONE 'UTC')::date, $3, overlay(repeat('.', 144) PLACING p.part FROM $5)
        FROM %1$I.marks m CROSS JOIN LATERAL (
            SELECT string_agg(coalesce(w.said, '.'), '' ORDER BY t.i) AS part
            FROM generate_series(0, 5) AS t (i) LEFT JOIN (
                SELECT extract(epoch FROM w.starts_at - $4)::integer / 600 AS i,
                    CASE WHEN sum(w.sum_units) * m.per > sum(w.n) * m.threshold
                        OR m.reaches AND sum(w.sum_units) * m.per = sum(w.n) * m.threshold THEN '1' ELSE '0' END AS said
                FROM %1$I.window_aggregates w
                WHERE w.device_key = $1 AND w.signal = $2 AND w.width_s = 60
                    AND w.starts_at >= $4 AND w.starts_at < $4 + interval '1 hour'
                GROUP BY 1) w USING (i)) p
        WHERE m.signal = $2
        ON CONFLICT (device_key, mark, day) DO UPDATE
            SET strip = overlay(s.strip PLACING substr(excluded.strip, $5, 6) FROM $5)
            WHERE substr(s.strip, $5, 6) <> substr(excluded.strip, $5, 6)$q$, of_schema)
    USING of_device, of_signal, of_tenant, hour, place;
END $$;

-- A strip follows its hour: whatever makes, corrects or removes the hour's roll-up (the closer, a rebuild, a swap) draws
-- the strip in the same transaction. ALWAYS: a swap writes with triggers off, and a strip must not stay behind.
CREATE FUNCTION draw_strip() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        EXECUTE format('UPDATE %1$I.day_strips SET strip = overlay(strip PLACING ''......'' FROM'
            ' extract(hour FROM $3 AT TIME ZONE ''UTC'')::integer * 6 + 1)'
            ' WHERE device_key = $1 AND mark IN (SELECT mark FROM %1$I.marks WHERE signal = $2)'
            ' AND day = ($3 AT TIME ZONE ''UTC'')::date', TG_TABLE_SCHEMA)
        USING OLD.device_key, OLD.signal, OLD.starts_at;
    ELSE
        EXECUTE format('SELECT %I.draw_hour($1, $2, $3, $4, $5)', TG_TABLE_SCHEMA)
        USING TG_TABLE_SCHEMA::text, NEW.device_key, NEW.signal, NEW.tenant_id, NEW.starts_at;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER hour_drawn AFTER INSERT OR UPDATE ON window_aggregates FOR EACH ROW
    WHEN (NEW.width_s = 3600 AND NEW.signal IN (1, 26, 102)) EXECUTE FUNCTION draw_strip();
CREATE TRIGGER hour_wiped AFTER DELETE ON window_aggregates FOR EACH ROW
    WHEN (OLD.width_s = 3600 AND OLD.signal IN (1, 26, 102)) EXECUTE FUNCTION draw_strip();
ALTER TABLE window_aggregates ENABLE ALWAYS TRIGGER hour_drawn;
ALTER TABLE window_aggregates ENABLE ALWAYS TRIGGER hour_wiped;

DO $$
DECLARE known record;
BEGIN
    FOR known IN SELECT device_key, signal, tenant_id, starts_at FROM window_aggregates
                 WHERE width_s = 3600 AND signal IN (1, 26, 102)
    LOOP
        PERFORM draw_hour(current_schema()::text, known.device_key, known.signal, known.tenant_id, known.starts_at);
    END LOOP;
END $$;

ALTER TABLE day_strips ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON day_strips USING (tenant_id = (SELECT own_tenant_id()));
CREATE POLICY all_tenants ON day_strips FOR SELECT TO fleetstream_reader USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON day_strips TO fleetstream_sink;
GRANT SELECT ON day_strips, marks TO fleetstream_api, fleetstream_reader, fleetstream_tenant;
GRANT SELECT ON marks TO fleetstream_sink;
