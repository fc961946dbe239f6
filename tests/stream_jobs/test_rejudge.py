"""Late readings change findings: the stream's words, corrected from the store, end as one look at the whole in order.

The query is played by the pure function that it calls and by its own writer; what it writes and what is judged again
meet in a real PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import psycopg
import pytest

from anomaly.corrections import Change
from anomaly.deployed import DEPLOYED
from anomaly.history import in_order
from anomaly.moments import SAMPLE
from anomaly.shard import Shard, ShardState
from anomaly.types import Rows
from contracts.finding import decode_finding
from contracts.tables import ROLE_SINK
from stream_jobs.detection.rejudge import Reach, Rejudge
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.findings import Adrift, FindingStore, finding_of
from stream_jobs.sinks.judgements import JudgementStore
from tests.stream_jobs.history_rows import RowOfPacket, enrol_car, insert_rows

WAIT_MS = 5_000
T0 = 1_790_000_000_000
COOLANT, RPM, VOLTAGE, THROTTLE, SPEED = 21, 20, 50, 25, 1
SET = tuple(one for one in DEPLOYED if one.name in ("car-coolant", "car-charging", "pattern-overheating-under-load"))
SHARD = Shard(SET, WAIT_MS)
FOUND = """
SELECT finding_id, floor(extract(epoch FROM opened_at) * 1000)::bigint,
    floor(extract(epoch FROM closed_at) * 1000)::bigint, score, observed, severity, readings
FROM finding_rows WHERE retracted_at IS NULL ORDER BY 1"""
SAID = "SELECT kafka_value FROM outbox WHERE topic = 'findings' ORDER BY outbox_id"
LATEST = """
INSERT INTO latest_values (device_key, signal, tenant_id, measured_ms, boot_epoch, seq, pos, val, quality, received_at)
VALUES (%s, 1, %s, %s, 1, 1, 1, 0, 0, now()) ON CONFLICT (device_key, signal)
DO UPDATE SET measured_ms = greatest(latest_values.measured_ms, excluded.measured_ms)"""


@dataclass
class Room:
    """One car, the stream's state, and a judge of what came late."""

    dsn: str
    car: int
    tenant_id: int
    judge: Rejudge
    stream: FindingStore
    run_id: UUID = field(default_factory=uuid4)
    state: ShardState = field(default_factory=SHARD.start)
    all: list[Rows] = field(default_factory=list)
    batch: int = 0
    corrected: dict[Change, int] = field(default_factory=dict)

    def comes(self, packets: list[Rows]) -> None:
        """What ingest and detection do with packets of both lanes."""
        rows = [RowOfPacket(int(p["seq"][0]), int(p["at_ms"][0]), _samples(p)) for p in packets]
        insert_rows(self.dsn, self.car, self.tenant_id, rows)
        newest = max(int(p["at_ms"].max()) for p in packets)
        with psycopg.connect(self.dsn) as connection:
            connection.execute(LATEST, (self.car, self.tenant_id, newest))
        step = SHARD.run(self.state, np.concatenate(packets))
        self.state, self.batch = step.state, self.batch + 1
        adrift = Adrift(step.astray, {}) if len(step.astray) else None
        self.stream.write(self.run_id, self.batch, step.told, step.readings, step.late, adrift)
        self.all += packets

    def judge_again(self) -> None:
        assert self.judge.store.open()
        self.judge.once()

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def offline(self) -> list[tuple[Any, ...]]:
        """What NumPy finds in everything, in order."""
        told = SHARD.run(SHARD.start(), in_order(np.concatenate(self.all))).told
        found = [finding_of(SET[row["deployment"]], row, "car-1", "north", "Car of car-1") for row in told]
        return sorted(
            (one.id, one.started_at_ms, one.closed_at_ms, one.score, one.observed, int(one.severity), one.readings)
            for one in found
        )


def _samples(packet: Rows) -> list[tuple[int, int, float, int]]:
    base = int(packet["at_ms"][0])
    return [(int(row["signal"]), int(row["at_ms"]) - base, float(row["value"]), 0) for row in packet]


@pytest.fixture
def room(role_dsn: Callable[[str], str]) -> Any:
    dsn = role_dsn(ROLE_SINK)
    car, tenant_id = enrol_car(dsn, "car-1")
    store = JudgementStore(dsn)
    totals: dict[Change, int] = {}

    def corrected(kinds: Any) -> None:
        for kind, count in kinds.items():
            totals[kind] = totals.get(kind, 0) + count

    judge = Rejudge(store, lambda: SHARD, Reach(86_400_000, settle_ms=8_000, follow_ms=120_000), 0.0, corrected)
    made = Room(dsn, car, tenant_id, judge, FindingStore(dsn, SET), corrected=totals)
    made.stream.begin(made.run_id, SHARD.version)
    yield made
    store.close()
    drop_all()


def packets(room: Room, first: int, last: int, hot: Callable[[int], bool], lane: int = 0) -> list[Rows]:
    """Four seconds each; coolant every four seconds, the rest every second."""
    rng = np.random.default_rng(first)
    made = []
    for at in range(first, last, 4):
        rows = [(COOLANT, at, 118.0 if hot(at) else 90.0)]
        for second in range(at, at + 4):
            rows += [(VOLTAGE, second, 14.1), (RPM, second, 1_500.0), (SPEED, second, 80.0)]
            rows.append((THROTTLE, second, 90.0 if hot(at - 20) else 30.0))
        one = np.zeros(len(rows), SAMPLE)
        one["device"], one["lane"], one["epoch"], one["seq"] = room.car, lane, 1, first + at // 4 + 1
        one["signal"], one["value"] = [row[0] for row in rows], [row[2] for row in rows]
        one["value"] += rng.integers(0, 9, len(rows)) / 10
        one["at_ms"] = [T0 + 1_000 * row[1] for row in rows]
        one["seq"] = at // 4 + 1
        one["pos"] = np.arange(1, len(rows) + 1)
        made.append(one)
    return made


def between(*spans: tuple[int, int]) -> Callable[[int], bool]:
    return lambda at: any(low <= at < high for low, high in spans)


def settle(room: Room, last: int) -> None:
    """Everything heals and goes on long enough to be left to the stream again."""
    for first in range(last, last + 400, 100):
        room.comes(packets(room, first, first + 100, between()))
        room.judge_again()


@pytest.mark.parametrize("seed", [1, 2])
def test_late_and_in_any_order_it_ends_as_one_look_at_the_whole(room: Room, seed: int) -> None:
    """Hot when it went away, cool and hot again while it was away, hot when it came back."""
    rng = np.random.default_rng(seed)
    hot = between((60, 140), (200, 232), (260, 320), (420, 448))
    room.comes(packets(room, 0, 100, hot))
    away = packets(room, 100, 300, hot, lane=1)
    back = packets(room, 300, 400, hot)
    parts = [away[at : at + 10] for at in range(0, len(away), 10)]
    parts += [back[at : at + 5] for at in range(0, len(back), 5)]
    order = rng.permutation(len(parts))
    backlog = iter(sorted(at for at in order if parts[at][0]["lane"][0]))
    live = iter(sorted(at for at in order if not parts[at][0]["lane"][0]))
    for at in order:
        room.comes(parts[next(backlog) if parts[at][0]["lane"][0] else next(live)])
        if rng.random() < 0.4:
            room.judge_again()
    room.comes(packets(room, 400, 460, hot))
    settle(room, 460)
    expected = room.offline()
    assert len(expected) >= 5
    assert room.rows(FOUND) == expected
    assert room.corrected.keys() >= {Change.ADDED, Change.RETRACTED}
    assert room.rows("SELECT count(*) FROM late_due") == room.rows("SELECT count(*) FROM late_followed") == [(0,)]
    said = [decode_finding(bytes(value)) for (value,) in room.rows(SAID)]
    last = {one.id: one for one in said}
    assert len({(one.id, one.revision) for one in said}) == len(said), "said twice"
    assert {one.id for one in last.values() if not one.retracted} == {row[0] for row in expected}
    revisions = dict(room.rows("SELECT finding_id, revision FROM finding_rows"))
    assert {one.id: one.revision for one in last.values()} == revisions
