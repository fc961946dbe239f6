"""A state machine over the ledger of seen numbers and the windows, on a real PostgreSQL.

Two lanes of a log grow; batches of any size are taken from either, again after a crash, from an older offset, or torn
in the middle of their transaction; the closer looks whenever it likes. The model is a plain Python reading of the log:
of a number's copies the first in its lane counts, nothing else does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contracts.limits import ALL_WIDTHS_S, ROLLUP_WIDTHS_S
from contracts.packet import Block
from contracts.ranges import ranges_of
from contracts.tables import ROLE_SINK
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks import writers
from stream_jobs.sinks.assemble import assemble
from stream_jobs.sinks.connection import connect, drop_all
from stream_jobs.sinks.driver import store_table
from stream_jobs.sinks.ledger import StoreLedger
from stream_jobs.sinks.transaction import Batch
from tests.stream_jobs.build import BACKLOG, LIVE, SPEED, T0, TOPICS, Device, Record, add_devices, table, target

EMPTY = (
    "DELETE FROM packet_rows; DELETE FROM window_aggregates; DELETE FROM window_publications; DELETE FROM rollup_due;"
    " DELETE FROM latest_values; DELETE FROM seen_ranges; DELETE FROM ingest_offsets; DELETE FROM quarantined;"
    " DELETE FROM epoch_owners; DELETE FROM outbox"
)
FAR_MS = T0 + 40 * 86_400_000
GRACE_MS, ROLLUP_WAIT_MS = 15_000, 60_000
SEEN = "SELECT device_key, boot_epoch, ranges::text, packets, samples, duplicates FROM seen_ranges ORDER BY 1, 2"
WINDOWS = """
SELECT device_key, width_s, (extract(epoch FROM starts_at) * 1000)::bigint, n, sum_units, min_units, max_units,
    first_ms, first_seq, last_ms, last_seq, late_minutes, state, published_revision
FROM window_aggregates ORDER BY 1, 2, 3"""
LAST_SAID = """
SELECT count(*) FROM window_aggregates w WHERE (w.n, w.sum_units, cardinality(w.late_minutes), w.publications)
    IS DISTINCT FROM (SELECT (p.n, p.sum_units, p.revision, p.publication)::record FROM window_publications p
        WHERE (p.device_key, p.signal, p.width_s, p.starts_at) = (w.device_key, w.signal, w.width_s, w.starts_at)
        ORDER BY p.publication DESC LIMIT 1)"""


class Torn(Exception):
    """The process died in the middle of its transaction."""


class LedgerAndWindows(RuleBasedStateMachine):
    """See the module. ``dsn`` and ``devices`` are set by the test."""

    dsn: ClassVar[str]
    devices: ClassVar[list[Device]]

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[str, list[tuple[int, int, int, int, int, bytes, bytes]]] = {LIVE: [], BACKLOG: []}
        self.taken = {LIVE: 0, BACKLOG: 0}
        self.next_seq: Counter[tuple[int, int]] = Counter()
        self.store = StoreLedger(self.dsn)

    @initialize()
    def empty(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(EMPTY)

    @rule(
        topic=st.sampled_from((LIVE, LIVE, BACKLOG)), car=st.integers(0, 1), epoch=st.integers(1, 2),
        skip=st.sampled_from((0, 0, 0, 2)), moment=st.integers(0, 400), value=st.integers(-50, 50),
        delay_ms=st.sampled_from((1_000, 40_000, 200_000, 4_000_000, 90_000_000)),
        edge=st.sampled_from((None, (60, 15_000), (60, 15_001), (3600, 59_999), (3600, 60_000), (3600, 15_001))),
    )  # fmt: skip
    def measure(
        self, topic: str, car: int, epoch: int, skip: int, moment: int, value: int, delay_ms: int,
        edge: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        """A packet of two readings; ``skip`` leaves a hole; ``edge``: received so long after a window of that width."""
        device = self.devices[car]
        self.next_seq[car, epoch] += 1 + skip
        seq, base_ms = self.next_seq[car, epoch], T0 + moment * 9_000
        frame = device.packet(seq, Block(SPEED, -2, 0, (0, 900), (value, -value)), base_ms=base_ms, epoch=epoch)
        received_ms = base_ms + delay_ms
        if edge is not None:
            received_ms = (base_ms // (edge[0] * 1_000) + 1) * edge[0] * 1_000 + edge[1]
        self.log[topic].append((device.key, epoch, seq, base_ms, value, frame, device.stamp(received_ms)))

    @precondition(lambda self: self.log[LIVE] or self.log[BACKLOG])
    @rule(data=st.data(), topic=st.sampled_from((LIVE, BACKLOG)), delay_s=st.integers(0, 5_000))
    def resend(self, data: st.DataObject, topic: str, delay_s: int) -> None:
        """The same bytes once more in the same lane, received later."""
        if self.log[topic]:
            again = data.draw(st.sampled_from(self.log[topic]))
            device = next(one for one in self.devices if one.key == again[0])
            self.log[topic].append((*again[:6], device.stamp(again[3] + 200_000 + delay_s * 1_000)))

    @rule(topic=st.sampled_from((LIVE, BACKLOG)), count=st.integers(1, 6), back=st.sampled_from((0, 0, 1, 3)))
    def take(self, topic: str, count: int, back: int) -> None:
        """Store a batch, which may begin with records that are stored already."""
        batch = self._batch(topic, self.taken[topic] - back, self.taken[topic] + count)
        if batch:
            store_table(target(self.dsn), table(batch))
            self.taken[topic] = max(self.taken[topic], batch[-1].offset + 1)

    @rule(live=st.integers(1, 4), backlog=st.integers(1, 4))
    def take_both(self, live: int, backlog: int) -> None:
        """Both lanes in one transaction."""
        counts = {LIVE: live, BACKLOG: backlog}
        batch = [
            one
            for topic, count in counts.items()
            for one in self._batch(topic, self.taken[topic], self.taken[topic] + count)
        ]
        if batch:
            store_table(target(self.dsn), table(batch))
        for one in batch:
            self.taken[one.topic] = one.offset + 1

    @rule(
        topic=st.sampled_from((LIVE, BACKLOG)), count=st.integers(1, 6),
        at=st.sampled_from(("write_windows", "write_latest", "write_packets")),
    )  # fmt: skip
    def die_in_between(self, topic: str, count: int, at: str) -> None:
        """The transaction is torn before one of its writes; nothing of it may stay."""
        batch = self._batch(topic, self.taken[topic], self.taken[topic] + count)
        if not batch:
            return
        with pytest.MonkeyPatch.context() as patch, connect(self.dsn) as connection:
            patch.setattr(writers, at, tear)
            before = connection.execute(SEEN.encode()).fetchall()
            try:
                Batch(assemble(table(batch), TOPICS), catalogue_scales()).commit(connection)
            except Torn:
                assert connection.execute(SEEN.encode()).fetchall() == before
            else:
                self.taken[topic] = batch[-1].offset + 1

    @rule(until_ms=st.integers(T0, T0 + 4_000_000), rows=st.integers(1, 50))
    def close(self, until_ms: int, rows: int) -> None:
        self.store.close_windows(until_ms, rows)

    @invariant()
    def numbers_are_those_taken(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            assert connection.execute(SEEN.encode()).fetchall() == self._expected_seen()

    def teardown(self) -> None:
        for topic in self.log:
            self.take(topic, len(self.log[topic]) + 1, 0)
        while self.store.close_windows(FAR_MS, 1_000):
            continue
        with psycopg.connect(self.dsn) as connection:
            assert connection.execute(SEEN.encode()).fetchall() == self._expected_seen()
            assert connection.execute(WINDOWS.encode()).fetchall() == self._expected_windows()
            assert connection.execute(LAST_SAID.encode()).fetchall() == [(0,)]
        self.store.disconnect()

    def _batch(self, topic: str, first: int, end: int) -> list[Record]:
        log = self.log[topic]
        return [Record(log[n][5], log[n][6], n, topic) for n in range(max(0, first), min(end, len(log)))]

    def _stored(self) -> Iterator[tuple[bool, tuple[int, int, int, int, int, bytes, bytes]]]:
        """Records taken so far, each with whether it is the first of its number."""
        known = set()
        for topic, log in self.log.items():
            for one in log[: self.taken[topic]]:
                yield one[:3] not in known, one
                known.add(one[:3])

    def _expected_seen(self) -> list[tuple[Any, ...]]:
        numbers: dict[tuple[int, int], list[int]] = {}
        copies: Counter[tuple[int, int]] = Counter()
        for first, (device, epoch, seq, *_) in self._stored():
            numbers.setdefault((device, epoch), [])
            if first:
                numbers[device, epoch].append(seq)
            else:
                copies[device, epoch] += 1
        return [
            (*key, as_text(found), len(found), 2 * len(found), copies[key]) for key, found in sorted(numbers.items())
        ]

    def _expected_windows(self) -> list[tuple[Any, ...]]:
        rows: dict[tuple[int, int, int], list[tuple[int, int, int, int, int]]] = {}
        late: dict[tuple[int, int, int], set[int]] = {}
        for first, (device, epoch, seq, base_ms, value, _, stamp) in self._stored():
            received_ms = int.from_bytes(stamp[2:10], "big")
            for pos, width_s in ((pos, width_s) for pos in (0, 1) for width_s in ALL_WIDTHS_S if first):
                event_ms, width_ms = base_ms + 900 * pos, width_s * 1_000
                key = (device, width_s, event_ms // width_ms * width_ms)
                rows.setdefault(key, []).append((event_ms, epoch, seq, pos, value if pos == 0 else -value))
                wait_ms = ROLLUP_WAIT_MS - 1 if width_s in ROLLUP_WIDTHS_S else GRACE_MS
                if received_ms > key[2] + width_ms + wait_ms:
                    late.setdefault(key, set()).add(received_ms // 60_000)
        return [
            (
                *key, len(found), sum(row[4] for row in found), min(row[4] for row in found),
                max(row[4] for row in found), min(found)[0], min(found)[2], max(found)[0], max(found)[2],
                sorted(late.get(key, ())), 1, len(late.get(key, ())),
            )
            for key, found in sorted(rows.items())
        ]  # fmt: skip


def tear(*_: object) -> None:
    raise Torn


def as_text(numbers: list[int]) -> str:
    """As PostgreSQL writes a multirange."""
    return "{" + ",".join(f"[{first},{last + 1})" for first, last in ranges_of(numbers)) + "}"


def test_ledger_and_windows_hold_in_any_order_with_any_crash(role_dsn: Callable[[str], str]) -> None:
    LedgerAndWindows.dsn = role_dsn(ROLE_SINK)
    LedgerAndWindows.devices = list(add_devices(LedgerAndWindows.dsn, {"north": ["car1", "car2"]}).values())
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    try:
        run_state_machine_as_test(
            LedgerAndWindows,
            settings=settings(max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=checks),
        )
    finally:
        drop_all()
