"""Packet rows for tests of history: made up, awkward on purpose, written into the real table."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg

from contracts.packet import Quality
from contracts.signals import catalogue
from infra.enrol import Enrolment, enrol

START_MS = 1_763_719_200_000  # 2025-11-21 10:00 UTC, the beginning of ten minutes
SIGNALS = tuple(signal for signal in catalogue() if not signal.transient)[:6]


@dataclass(frozen=True, slots=True)
class RowOfPacket:
    """One row; samples are (signal number, offset in ms, value, quality)."""

    seq: int
    base_ms: int
    samples: Sequence[tuple[int, int, float, int]]
    epoch: int = 1
    received_ms: int | None = None
    believed: int | None = None


def awkward_rows(chance: random.Random, count: int, first_seq: int = 1) -> list[RowOfPacket]:
    """Packets of about a second: holes in the numbers, restarts, late ones, empty ones, values of every kind."""
    rows, seq, epoch, at = [], first_seq, 1, START_MS
    for _ in range(count):
        seq += chance.choice((1, 1, 1, 1, 2, 5, 40))
        at += chance.choice((1_000, 1_000, 997, 1_003, 90_000))
        if chance.random() < 0.01:
            epoch, seq = epoch + 1, 1
        late_ms = chance.choice((150, 200, 90, 7 * 86_400_000))
        samples = [_sample(chance) for _ in range(chance.choice((0, 1, 12, 30)))]
        rows.append(RowOfPacket(seq, at, samples, epoch, at + late_ms, len(samples) + chance.choice((0, 0, 2))))
    return rows


def _sample(chance: random.Random) -> tuple[int, int, float, int]:
    signal = chance.choice(SIGNALS)
    offset = chance.choice((0, 100, 250, 250, 999, -5))
    odd = chance.random()
    if odd < 0.02:
        return signal.number, offset, float("nan"), Quality.NOT_FINITE
    if odd < 0.04:
        return signal.number, offset, chance.choice((0.1234567, 1e300, -0.0, 2.0**51)), Quality.OUT_OF_RANGE
    return signal.number, offset, signal.from_units(chance.randint(-40_000, 40_000)), chance.choice((0, 0, 0, 1))


def enrol_car(dsn: str, device: str, tenant: str = "north") -> tuple[int, int]:
    """(device key, tenant id)."""
    with psycopg.connect(dsn) as connection:
        (made,) = enrol(connection, [Enrolment(device, tenant, f"Car of {device}", "car")])
    return made.device_key, made.tenant_id


def insert_rows(dsn: str, device_key: int, tenant_id: int, rows: Sequence[RowOfPacket]) -> None:
    """As the sink would, through INSERT."""
    columns = (
        "received_at, first_at, last_at, boot_epoch, seq, base_ms, device_key, tenant_id, samples, lane, clock_trusted,"
        " sha256, signals, offsets_ms, vals, qualities"
    )
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO packet_rows ({columns}) VALUES ({', '.join(['%s'] * 16)})".encode(),
            [_values(row, device_key, tenant_id) for row in rows],
        )


def _values(row: RowOfPacket, device_key: int, tenant_id: int) -> tuple[object, ...]:
    offsets = [one[1] for one in row.samples] or [0]
    qualities = [one[3] for one in row.samples]
    return (
        at(row.base_ms if row.received_ms is None else row.received_ms), at(row.base_ms + min(offsets)),
        at(row.base_ms + max(offsets)), row.epoch, row.seq, row.base_ms, device_key, tenant_id,
        len(row.samples) if row.believed is None else row.believed, row.seq % 2, row.seq % 7 > 0,
        hashlib.sha256(f"{device_key} {row.epoch} {row.seq}".encode()).digest(), [one[0] for one in row.samples],
        [one[1] for one in row.samples], [one[2] for one in row.samples], qualities if any(qualities) else None,
    )  # fmt: skip


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
