"""A store filled by hand for the benchmark of history: synthetic packets, COPY through the sink's own row writer.

Nothing passes Kafka or Spark here. Rows have the shape the sink gives them: packets of one second, every signal once,
times that jitter by some milliseconds, values that wander by a few steps of the signal's resolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from contracts.signals import catalogue
from contracts.tables import ROLE_API, ROLE_SINK
from infra.backends import make_postgres
from infra.enrol import Enrolment, enrol
from infra.migrate import create_roles, maintain, migrate
from infra.postgres import Postgres
from infra.processes import Child, free_port, wait_ready
from stream_jobs.arithmetic import Ints, to_double
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.pgbinary import COPY_COLUMNS, COPY_HEADER, COPY_TRAILER, PacketRows, copy_rows, fixed_columns

SIGNALS = tuple(sorted(signal.number for signal in catalogue() if not signal.transient and signal.kind == "gauge"))[:50]
TENANT = "north"
PIECE_S = 3_600
SCHEMA = "fleetstream"
DAY_S = 86_400

STATES = """
WITH new AS (
    INSERT INTO assets (tenant_id, name, kind)
    SELECT t.tenant_id, 'state-' || to_char(i, 'FM00000'), 'car' FROM tenants t, generate_series(1, %(assets)s) i
    WHERE t.name = %(tenant)s RETURNING asset_id, tenant_id, name
), device AS (
    INSERT INTO devices (device, tenant_id, kind) SELECT name, tenant_id, 'simulated' FROM new
    RETURNING device_key, tenant_id, device
)
INSERT INTO bindings (device_key, asset_id, tenant_id)
SELECT d.device_key, n.asset_id, d.tenant_id FROM device d JOIN new n ON n.name = d.device"""
LATEST = """
INSERT INTO latest_values (device_key, signal, tenant_id, measured_ms, boot_epoch, seq, pos, val, quality, received_at)
SELECT d.device_key, s.signal, d.tenant_id, (extract(epoch FROM now()) * 1000)::bigint - d.device_key %% 9000, 1, 1,
       0, d.device_key %% 100, 0, now()
FROM devices d CROSS JOIN (SELECT signal FROM signals WHERE signal = ANY(%(signals)s)) s
WHERE d.device LIKE 'state-%%'"""
WINDOWS = """
INSERT INTO window_aggregates (device_key, signal, width_s, starts_at, tenant_id, state, n, sum_units, sumsq_units,
    min_units, max_units, first_units, first_ms, first_epoch, first_seq, first_pos, last_units, last_ms, last_epoch,
    last_seq, last_pos)
SELECT d.device_key, %(signal)s, w, at, d.tenant_id, 1, w, w * 5000, w * 25000000::bigint,
       4000 + i %% 500, 6000 - i %% 500, 5000, 0, 1, 1, 1, 5000, 1, 1, 1, 1
FROM devices d CROSS JOIN (VALUES (10), (60), (3600)) widths (w)
CROSS JOIN LATERAL (
    SELECT date_bin(w * interval '1 s', %(from)s, 'epoch'::timestamptz) + i * w * interval '1 s' AS at, i
    FROM generate_series(0, %(seconds)s / w - 1) AS i) t
WHERE d.device LIKE 'bench-%%'"""

SIZES = """
SELECT (SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'packet_rows'::regclass),
       pg_total_relation_size('packet_blocks') + pg_total_relation_size('reading_blocks')"""


@dataclass(frozen=True, slots=True)
class Filled:
    """What lies in the store: [start_s, end_s) of every device, one packet a second."""

    devices: tuple[int, ...]
    start_s: int
    end_s: int

    @property
    def samples(self) -> int:
        return len(self.devices) * (self.end_s - self.start_s) * len(SIGNALS)


@contextmanager
def store(home: Path) -> Iterator[Postgres]:
    """An embedded PostgreSQL with our schema; what a filled one needs in memory is its usual setting."""
    postgres = make_postgres(home, free_port())
    postgres.prepare()
    child = Child(postgres.command())
    try:
        wait_ready(child, postgres.ready, 60)
        postgres.create_database()
        create_roles(postgres.dsn(), postgres.passwords())
        migrate(postgres.dsn(), SCHEMA)
        yield postgres
    finally:
        child.stop()


def dsn(postgres: Postgres, role: str = "postgres") -> str:
    return make_conninfo(postgres.dsn(role), options=f"-csearch_path={SCHEMA}")


def fill(postgres: Postgres, samples: int, end_s: int, seed: int = 1) -> Filled:
    """COPY packets of so many devices that two days of each hold ``samples``."""
    per_second = len(SIGNALS)
    devices = max(1, round(samples / per_second / (2 * DAY_S)))
    seconds = samples // per_second // devices
    start_s = end_s - seconds
    with psycopg.connect(dsn(postgres)) as connection:
        made = enrol(connection, [Enrolment(f"bench-{at}", TENANT, f"bench-{at}", "car") for at in range(devices)])
    for day in range(start_s // DAY_S, end_s // DAY_S + 1):
        maintain(postgres.dsn(), SCHEMA, datetime.fromtimestamp(day * DAY_S, UTC) + timedelta(days=1), 10_000)
    chance = np.random.default_rng(seed)
    names = sql.SQL(", ").join(map(sql.Identifier, COPY_COLUMNS))
    statement = sql.SQL("COPY packet_rows ({}) FROM STDIN (FORMAT BINARY)").format(names)
    with psycopg.connect(dsn(postgres, ROLE_SINK)) as connection:
        for piece_s in range(start_s, end_s, PIECE_S):  # as time goes by: all devices' hours, one after the other
            for one in made:
                rows = _packets(chance, one.device_key, one.tenant_id, start_s, piece_s, min(PIECE_S, end_s - piece_s))
                with connection.cursor() as cursor, cursor.copy(statement) as copy:
                    copy.write(COPY_HEADER)
                    for piece in copy_rows(rows):
                        copy.write(piece)
                    copy.write(COPY_TRAILER)
                connection.commit()
    return Filled(tuple(one.device_key for one in made), start_s, end_s)


def fill_states(postgres: Postgres, assets: int, signals: int = 24) -> None:
    """Assets that each have a latest value of ``signals`` signals."""
    with psycopg.connect(dsn(postgres)) as connection:
        connection.execute(STATES, {"assets": assets, "tenant": TENANT})
        connection.execute(LATEST, {"signals": list(SIGNALS[:signals])})
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE")


def fill_windows(postgres: Postgres, filled: Filled) -> None:
    """Windows of the first signal for charts; their values are not those of the packets."""
    begin = datetime.fromtimestamp(filled.start_s, UTC)
    values = {"signal": SIGNALS[0], "from": begin, "seconds": filled.end_s - filled.start_s}
    with psycopg.connect(dsn(postgres)) as connection:
        connection.execute(WINDOWS, values)


def sizes(postgres: Postgres) -> dict[str, int]:
    """Bytes with indexes and TOAST: ``hot`` rows and compacted ``blocks``."""
    with psycopg.connect(dsn(postgres)) as connection:
        row = connection.execute(SIZES).fetchone()
    assert row is not None
    return {"hot": int(row[0] or 0), "blocks": int(row[1])}


def _packets(
    chance: np.random.Generator, device_key: int, tenant_id: int, start_s: int, piece_s: int, seconds: int
) -> PacketRows:
    scales, size = catalogue_scales(), len(SIGNALS)
    at, _ = scales.find(np.array(SIGNALS, np.int64))
    base = (piece_s + np.arange(seconds, dtype=np.int64)) * 1000 + chance.integers(0, 4, seconds)
    received = base + 1_000 + chance.integers(20, 400, seconds)
    units = _wander(chance, scales.lowest[at], scales.highest[at], seconds)
    full = np.full
    fixed = fixed_columns(received, base, base + 3) | {
        "boot_epoch": full(seconds, 1), "seq": piece_s - start_s + 1 + np.arange(seconds), "base_ms": base,
        "device_key": full(seconds, device_key), "tenant_id": full(seconds, tenant_id), "samples": full(seconds, size),
        "lane": full(seconds, 0), "clock_trusted": full(seconds, True),
        "sha256": chance.integers(0, 256, (seconds, 32), np.uint8),
    }  # fmt: skip
    return PacketRows(
        fixed, full(seconds, size), np.tile(np.array(SIGNALS, np.int64), seconds),
        np.tile(np.arange(size) % 4, seconds), to_double(units.ravel(), np.tile(scales.exponents[at], seconds)),
        np.zeros(seconds * size, np.int64),
    )  # fmt: skip


def _wander(chance: np.random.Generator, lowest: Ints, highest: Ints, seconds: int) -> Ints:
    """A walk inside each signal's range: half of the signals stand still most of the time."""
    calm = np.arange(len(lowest)) % 2 == 0
    steps = chance.integers(-40, 41, (seconds, len(lowest)))
    steps[:, calm] *= chance.random((seconds, int(calm.sum()))) < 0.05
    middle = (lowest + highest) // 2
    return np.asarray(np.clip(middle + np.cumsum(steps, 0), lowest, highest))


__all__ = ["ROLE_API", "SIGNALS", "TENANT", "Filled", "dsn", "fill", "fill_states", "fill_windows", "sizes", "store"]
