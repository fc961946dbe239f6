-- Versions of the derived tables: each lives in a schema of its own, with these same migrations.

-- What happened to this schema as a version: made, filled, swapped in, swapped out. Never carried from one to another.
CREATE TABLE rebuild_notes (
    note_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    noted_at  timestamptz NOT NULL DEFAULT now(),
    what      text NOT NULL CHECK (what IN ('made', 'filled', 'swapped_in', 'swapped_out')),
    source    text NOT NULL CHECK (source IN ('kafka', 'archive')),
    since     timestamptz,
    detail    jsonb NOT NULL DEFAULT '{}'
);

-- A file is hashed again before anything that only it holds may leave the log.
ALTER TABLE archive_files ADD COLUMN verified_at timestamptz;
CREATE INDEX archive_files_place ON archive_files (topic_id, kafka_partition, first_offset);
CREATE INDEX archive_files_day ON archive_files (tenant_id, received_day);

-- How far the raw log was trimmed: everything below is in verified files and in the store.
CREATE TABLE trimmed_offsets (
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    topic           text NOT NULL,
    trimmed_to      bigint NOT NULL,
    trimmed_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic_id, kafka_partition)
);

-- What is wrong with the log or the archive now, and what was: one row per alarm and place, cleared when it is over.
CREATE TABLE log_alarms (
    alarm      text NOT NULL CHECK (alarm IN ('log_size', 'archive_damaged', 'archive_incomplete')),
    place      text NOT NULL,
    detail     text NOT NULL,
    raised_at  timestamptz NOT NULL DEFAULT now(),
    cleared_at timestamptz,
    PRIMARY KEY (alarm, place)
);

DO $$
DECLARE s text := quote_ident(current_schema()); t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['rebuild_notes', 'trimmed_offsets', 'log_alarms'] LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s.%I TO fleetstream_sink', s, t);
        EXECUTE format('GRANT SELECT ON %s.%I TO fleetstream_api, fleetstream_reader', s, t);
    END LOOP;
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %s TO fleetstream_sink', s);
END $$;
