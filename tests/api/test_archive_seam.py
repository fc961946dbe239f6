"""The same question before and after retention: readings that left the store are answered from the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from api.queries.archive import read_joined
from api.queries.readings import Columns, Place
from contracts.packet import Block, DoubleBlock
from contracts.signals import Retention, catalogue
from contracts.tables import ROLE_API, ROLE_SINK, TENANT_SETTING
from infra.history import expire
from infra.migrate import maintain
from stream_jobs.sinks.compactor import Compactor
from tests.stream_jobs.build import LATITUDE, RPM, SPEED, Device
from tests.stream_jobs.fix_plain import PlainLine, plain
from tests.stream_jobs.test_heart_replay import fill
from tests.stream_jobs.test_trim import archive_all

__all__ = ["plain"]

MIDNIGHT = 1_790_035_200_000
"""2026-09-22, Unix milliseconds: the seam, when the day before is dropped."""

DAY_MS = 86_400_000
AFTER_RETENTION = datetime(2026, 10, 6, 12, tzinfo=UTC)
Rows = list[tuple[Any, ...]]


class Question:
    """Everything of an asset's signal, page by page, as the API's role."""

    def __init__(self, dsn: str, archive: Path | None, limit: int) -> None:
        self.dsn, self.archive, self.limit = dsn, archive, limit

    def ask(self, device: Device, signal: int, from_ms: int, to_ms: int) -> Rows:
        return asyncio.run(self._ask(device, signal, from_ms, to_ms))

    async def _ask(self, device: Device, signal: int, from_ms: int, to_ms: int) -> Rows:
        rows: Rows = []
        connection = await psycopg.AsyncConnection.connect(self.dsn, row_factory=dict_row, autocommit=True)
        async with connection:
            await connection.execute("SELECT set_config(%s, %s, false)", (TENANT_SETTING, str(device.tenant_id)))
            row = await (
                await connection.execute("SELECT asset_id FROM assets WHERE name = %s", (device.name,))
            ).fetchone()
            assert row is not None
            at: Place | None = Place(from_ms)
            while at is not None:
                page = await read_joined(connection, self.archive, row["asset_id"], signal, at, to_ms, self.limit)
                rows += told(page.rows)
                assert page.next_place is None or page.next_place > at
                at = page.next_place
        return rows


def told(columns: Columns) -> Rows:
    return [tuple(one) for one in zip(*columns.lists(), strict=True)]


def straddling(device: Device) -> list[tuple[bytes, bytes]]:
    """Packets around midnight, some late, some copied: event order and receive order cross the seam both ways."""
    frames = []
    for seq in range(1, 81):
        base = MIDNIGHT + (seq - 40) * 10_000
        delay = (200, 300_000, 7_200_000, 90_000_000)[seq % 4]
        blocks: list[Block | DoubleBlock] = [Block(SPEED, -2, 0, (0, 500, 900), (seq, -seq, 2**40))]
        if seq % 5 == 0:
            blocks.append(DoubleBlock(RPM, (0, 100), (float("nan"), 800.04)))
        frames.append((device.packet(seq, *blocks, base_ms=base, epoch=7), device.stamp(base + delay)))
    return frames + frames[::7]


def test_old_and_new_readings_are_one_answer(
    plain: PlainLine, schema: str, postgres_dsn: str, role_dsn: Callable[[str], str], tmp_path: Path
) -> None:
    car, other = plain.devices["car1"], plain.devices["car2"]
    plain.send_from(car, straddling(car))
    fill(plain, 60)
    plain.drain()
    archive_all(plain, tmp_path / "archive")
    ranges = dict.fromkeys((car, other), (MIDNIGHT - DAY_MS, MIDNIGHT + DAY_MS))
    asked = [(device, signal, *span) for device, span in ranges.items() for signal in (SPEED, RPM, LATITUDE)]
    store = Question(role_dsn(ROLE_API), None, 10_000)
    before = [store.ask(*one) for one in asked]
    assert len(before[0]) > 300 and len(before[4]) > 50

    maintain(postgres_dsn, schema, AFTER_RETENTION, retention_days=14)
    (left,) = plain.rows("SELECT count(*) FROM packet_rows")[0]
    assert 0 < left < 80, "the day before midnight is gone, the day after is there"
    assert [store.ask(*one) for one in asked] != before
    for limit in (10_000, 37):
        joined = Question(role_dsn(ROLE_API), tmp_path / "archive", limit)
        assert [joined.ask(*one) for one in asked] == before


def test_a_class_that_is_kept_shorter_is_read_from_the_archive(
    plain: PlainLine, schema: str, postgres_dsn: str, role_dsn: Callable[[str], str], tmp_path: Path
) -> None:
    """Its blocks are gone, while the packets' partitions of those days are still there."""
    car, noon = plain.devices["car1"], datetime(2026, 9, 21, 12, tzinfo=UTC)
    maintain(postgres_dsn, schema, noon, retention_days=10_000)
    plain.send_from(car, straddling(car))
    plain.drain()
    archive_all(plain, tmp_path / "archive")
    span = (MIDNIGHT - DAY_MS, MIDNIGHT + DAY_MS)
    store, joined = (Question(role_dsn(ROLE_API), folder, 10_000) for folder in (None, tmp_path / "archive"))
    before = store.ask(car, SPEED, *span)
    now = noon + timedelta(days=4)
    assert Compactor(role_dsn(ROLE_SINK)).run(int(now.timestamp() * 1_000), 3_600).packets == 80
    short = {catalogue().by_number(SPEED).retention: 2}
    assert expire(postgres_dsn, schema, now, dict.fromkeys(Retention, 1_000) | short) > 0
    assert len(store.ask(car, SPEED, *span)) < len(before)
    assert joined.ask(car, SPEED, *span) == before
