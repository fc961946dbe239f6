-- What arrives: the ledger of offsets and identities, packets, windows, latest state, and everything set aside.

-- Exactly once by offsets: one row per Kafka topic (by its id, so that a re-created topic starts afresh) and partition.
CREATE TABLE ingest_offsets (
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    topic           text NOT NULL,
    next_offset     bigint NOT NULL,
    max_received_ms bigint NOT NULL DEFAULT 0,
    packets         bigint NOT NULL DEFAULT 0,
    samples         bigint NOT NULL DEFAULT 0,
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic_id, kafka_partition)
);

-- The ledger is the dedupe: the sequence numbers stored per device and boot epoch. A number in the set is a duplicate,
-- however late; a hole is a gap with a name. The nonce tells a clone or a restored image from the device itself.
CREATE TABLE seen_ranges (
    device_key integer NOT NULL REFERENCES devices,
    boot_epoch bigint NOT NULL,
    nonce      bigint NOT NULL,
    tenant_id  integer NOT NULL,
    ranges     int8multirange NOT NULL DEFAULT '{}',
    packets    bigint NOT NULL DEFAULT 0,
    samples    bigint NOT NULL DEFAULT 0,
    duplicates bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (device_key, boot_epoch)
) WITH (fillfactor = 70);

-- One row per packet, partitioned by receive day (partitions are created ahead and dropped by `store maintain`).
-- The last eight columns are in the sink's COPY order. qualities NULL: every sample is good. NaN value: see quality.
CREATE TABLE packet_rows (
    received_at timestamptz NOT NULL,
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL,
    stored_at   timestamptz NOT NULL DEFAULT now(),
    boot_epoch  bigint NOT NULL,
    seq         bigint NOT NULL,
    base_ms     bigint NOT NULL,
    device_key  integer NOT NULL,
    tenant_id   integer NOT NULL,
    samples     integer NOT NULL,
    lane        smallint NOT NULL,
    clock_trusted boolean NOT NULL,
    signals     smallint[] NOT NULL,
    offsets_ms  integer[] NOT NULL,
    vals        double precision[] NOT NULL,
    qualities   smallint[],
    sha256      bytea NOT NULL
) PARTITION BY RANGE (received_at);
CREATE INDEX packets_device_time ON packet_rows (device_key, first_at, last_at);

-- Mergeable partial aggregates. Sums are integers of the signal's resolution, so neither order nor batching can change
-- them. late_minutes: the set of receive minutes (Unix epoch minutes) in which late packets changed this row; its size
-- is the revision. state: 0 open, 1 closed and published as it is, 2 closed and changed since.
CREATE TABLE window_aggregates (
    device_key  integer NOT NULL,
    signal      smallint NOT NULL,
    width_s     integer NOT NULL,
    starts_at   timestamptz NOT NULL,
    tenant_id   integer NOT NULL,
    state       smallint NOT NULL DEFAULT 0,
    n           bigint NOT NULL,
    sum_units   numeric NOT NULL,
    sumsq_units numeric NOT NULL,
    min_units   bigint NOT NULL,
    max_units   bigint NOT NULL,
    first_units bigint NOT NULL,
    first_ms    bigint NOT NULL,
    first_epoch bigint NOT NULL,
    first_seq   bigint NOT NULL,
    first_pos   integer NOT NULL,
    last_units  bigint NOT NULL,
    last_ms     bigint NOT NULL,
    last_epoch  bigint NOT NULL,
    last_seq    bigint NOT NULL,
    last_pos    integer NOT NULL,
    late_minutes integer[] NOT NULL DEFAULT '{}',
    published_revision integer,
    PRIMARY KEY (device_key, signal, width_s, starts_at)
) WITH (fillfactor = 70);
CREATE INDEX window_unpublished ON window_aggregates (starts_at, width_s) WHERE state <> 1;

-- What a window said each time it was published: the value first published stays readable after a correction.
CREATE TABLE window_publications (
    device_key   integer NOT NULL,
    signal       smallint NOT NULL,
    width_s      integer NOT NULL,
    starts_at    timestamptz NOT NULL,
    revision     integer NOT NULL,
    tenant_id    integer NOT NULL,
    n            bigint NOT NULL,
    sum_units    numeric NOT NULL,
    sumsq_units  numeric NOT NULL,
    min_units    bigint NOT NULL,
    max_units    bigint NOT NULL,
    last_units   bigint NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (device_key, signal, width_s, starts_at, revision)
);

CREATE TABLE latest_values (
    device_key  integer NOT NULL,
    signal      smallint NOT NULL,
    tenant_id   integer NOT NULL,
    measured_ms bigint NOT NULL,
    boot_epoch  bigint NOT NULL,
    seq         bigint NOT NULL,
    pos         integer NOT NULL,
    val         double precision NOT NULL,
    quality     smallint NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (device_key, signal)
) WITH (fillfactor = 50);

-- Sequence ranges that an agent accepted and dropped, as it reported them itself.
CREATE TABLE agent_gaps (
    device_key   integer NOT NULL,
    boot_epoch   bigint NOT NULL,
    first_seq    bigint NOT NULL,
    last_seq     bigint NOT NULL,
    tenant_id    integer NOT NULL,
    reason       smallint NOT NULL,
    retention    smallint NOT NULL,
    packets      bigint NOT NULL,
    samples      bigint NOT NULL,
    reported_seq bigint NOT NULL,
    received_at  timestamptz NOT NULL,
    PRIMARY KEY (device_key, boot_epoch, first_seq, last_seq)
);

-- The newest account of each agent per boot epoch (contracts.status).
CREATE TABLE agent_status (
    device_key  integer NOT NULL,
    boot_epoch  bigint NOT NULL,
    nonce       bigint NOT NULL,
    tenant_id   integer NOT NULL,
    next_seq    bigint NOT NULL,
    at_ms       bigint NOT NULL,
    received_at timestamptz NOT NULL,
    account     jsonb NOT NULL,
    PRIMARY KEY (device_key, boot_epoch)
);

-- Bytes that cannot become readings, or whose single samples cannot be believed; unique by where they lie in the log.
CREATE TABLE quarantined (
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    topic           text NOT NULL,
    tenant_id       integer,
    device_key      integer,
    boot_epoch      bigint,
    seq             bigint,
    reason          text NOT NULL,
    samples         integer NOT NULL DEFAULT 0,
    detail          jsonb NOT NULL DEFAULT '{}',
    received_at     timestamptz,
    quarantined_at  timestamptz NOT NULL DEFAULT now(),
    bytes           bytea NOT NULL,
    PRIMARY KEY (topic_id, kafka_partition, kafka_offset)
);

-- What the gateway refused, from the dead-letter topic.
CREATE TABLE refused (
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    tenant_id       integer,
    device          text NOT NULL,
    boot_epoch      bigint,
    seq             bigint,
    reason          text NOT NULL,
    detail          text NOT NULL,
    mqtt_topic      text NOT NULL,
    received_at     timestamptz NOT NULL,
    bytes           bytea NOT NULL,
    PRIMARY KEY (topic_id, kafka_partition, kafka_offset)
);

-- Parquet files of the archive: which offsets they hold, and their hash.
CREATE TABLE archive_files (
    path            text PRIMARY KEY,
    topic_id        uuid NOT NULL,
    topic           text NOT NULL,
    kafka_partition integer NOT NULL,
    first_offset    bigint NOT NULL,
    last_offset     bigint NOT NULL,
    tenant_id       integer NOT NULL,
    received_day    date NOT NULL,
    packets         bigint NOT NULL,
    size_bytes      bigint NOT NULL,
    sha256          bytea NOT NULL,
    written_at      timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE archive_offsets (
    topic_id        uuid NOT NULL,
    kafka_partition integer NOT NULL,
    topic           text NOT NULL,
    next_offset     bigint NOT NULL,
    PRIMARY KEY (topic_id, kafka_partition)
);
