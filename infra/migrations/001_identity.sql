-- Tenants, assets, devices, dated bindings, signals, keys. Three things from the start: who owns it (tenant), what is
-- measured (asset), what measures it (device). Bindings are dated: a device moves from car to car.
-- Roles are created before by `infra/migrate.py` (cluster-wide); this file only grants.

CREATE TABLE tenants (
    tenant_id  integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9_-]{1,64}$'),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE assets (
    asset_id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  integer NOT NULL REFERENCES tenants,
    name       text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    kind       text NOT NULL CHECK (kind IN ('car', 'truck', 'turbine', 'pump', 'process', 'other')),
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, name)
);

CREATE TABLE devices (
    device_key integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    device     text NOT NULL UNIQUE CHECK (device ~ '^[A-Za-z0-9_-]{1,64}$'),
    tenant_id  integer NOT NULL REFERENCES tenants,
    kind       text NOT NULL DEFAULT 'device' CHECK (kind IN ('device', 'simulated', 'recording')),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

CREATE TABLE bindings (
    device_key integer NOT NULL REFERENCES devices,
    asset_id   integer NOT NULL REFERENCES assets,
    tenant_id  integer NOT NULL REFERENCES tenants,
    valid      tstzrange NOT NULL DEFAULT tstzrange(NULL, NULL) CHECK (NOT isempty(valid)),
    -- one device measures one asset at a time; int4range makes plain GiST enough, without btree_gist
    EXCLUDE USING gist (int4range(device_key, device_key, '[]') WITH &&, valid WITH &&)
);
CREATE INDEX bindings_asset ON bindings (asset_id);

CREATE TABLE signals (
    signal    smallint PRIMARY KEY,
    path      text NOT NULL UNIQUE,
    unit      text NOT NULL,
    datatype  text NOT NULL,
    exponent  smallint NOT NULL,
    minimum   double precision NOT NULL,
    maximum   double precision NOT NULL,
    kind      text NOT NULL,
    axis      text NOT NULL,
    retention smallint NOT NULL,
    grace_s   integer NOT NULL,
    source    text NOT NULL,
    text      text NOT NULL,
    retired   boolean NOT NULL DEFAULT false
);

CREATE TABLE api_keys (
    key_id     text PRIMARY KEY,
    key_sha256 bytea NOT NULL UNIQUE CHECK (length(key_sha256) = 32),
    tenant_id  integer NOT NULL REFERENCES tenants,
    role       text NOT NULL CHECK (role IN ('operator', 'maintenance', 'insurer', 'auditor', 'admin')),
    label      text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);

-- Results leave by the outbox: rows in the transaction that made them; a relay writes them to their topics.
-- kafka_value NULL is a tombstone.
CREATE TABLE outbox (
    outbox_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id    integer,
    topic        text NOT NULL,  -- name of a property of contracts.topics.Topics: 'registry', 'windows', 'commands', 'events'
    kafka_key    text NOT NULL,
    kafka_value  bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz
);
CREATE INDEX outbox_waiting ON outbox (outbox_id) WHERE published_at IS NULL;
