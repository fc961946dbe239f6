"""Partial windows against one-sample-at-a-time Python, in any split and any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.limits import WINDOW_WIDTHS_S
from contracts.packet import Block
from contracts.signals import catalogue
from stream_jobs.arithmetic import as_ints
from stream_jobs.decode import decode
from stream_jobs.heart import range_literals, repeats
from stream_jobs.merge import Windows, aggregate, newest, order_samples
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.assemble import assemble
from tests.stream_jobs.build import T0, TOPICS, Device, in_log_order, table

CARS = (Device("car1", 7, "north", 3), Device("car2", 2, "north", 3))
Key = tuple[int, int, int, int]


@dataclass(frozen=True)
class Sent:
    """One packet of one block."""

    car: int
    epoch: int
    seq: int
    signal: int
    base_ms: int
    offsets: tuple[int, ...]
    values: tuple[int, ...]
    qualities: tuple[int, ...]
    received_ms: int

    def frame(self) -> tuple[bytes, bytes]:
        exponent = catalogue().by_number(self.signal).exponent
        block = Block(self.signal, exponent, 0, self.offsets, self.values, self.qualities)
        car = CARS[self.car]
        return car.packet(self.seq, block, base_ms=self.base_ms, epoch=self.epoch), car.stamp(self.received_ms)


@st.composite
def sent(draw: st.DrawFn) -> list[Sent]:
    packets = []
    for seq in range(1, draw(st.integers(1, 8)) + 1):
        size = draw(st.integers(1, 5))
        offset = st.integers(0, 4).map(lambda n: n * 6_000)
        packets.append(
            Sent(
                draw(st.integers(0, 1)), draw(st.integers(1, 2)), seq, draw(st.sampled_from((1, 20))),
                T0 + draw(st.integers(-3, 3)) * 20_000, draw(st.tuples(*[offset] * size)),
                draw(st.tuples(*[st.integers(0, 50)] * size)),
                draw(st.tuples(*[st.sampled_from((0, 0, 2, 64))] * size)),
                T0 + draw(st.integers(0, 300_000)),
            )
        )  # fmt: skip
    return packets


def reduce(packets: list[Sent]) -> tuple[Windows, list[tuple[int, ...]]]:
    (part,) = assemble(table(in_log_order([one.frame() for one in packets])), TOPICS)
    decoded = decode(part, catalogue_scales())
    ordered = order_samples(decoded.packets, decoded.samples)
    latest = newest(ordered, catalogue_scales())
    columns = (latest.device_key, latest.signal, latest.measured_ms, latest.boot_epoch, latest.seq, latest.pos)
    return aggregate(ordered, catalogue_scales()), list(zip(*(column.tolist() for column in columns), strict=True))


def slowly(packets: list[Sent]) -> dict[Key, tuple[object, ...]]:
    """The same, as the contract words it."""
    rows: dict[Key, list[tuple[int, int, int, int, int]]] = {}
    late: dict[Key, set[int]] = {}
    for one in packets:
        grace_ms = catalogue().by_number(one.signal).grace_s * 1000
        for pos, (offset, value, quality) in enumerate(zip(one.offsets, one.values, one.qualities, strict=True)):
            event = one.base_ms + offset
            if quality >= 64:
                continue
            for width in WINDOW_WIDTHS_S:
                start = event // (width * 1000) * width
                key = (CARS[one.car].key, one.signal, width, start)
                rows.setdefault(key, []).append((event, one.epoch, one.seq, pos, value))
                if one.received_ms > (start + width) * 1000 + grace_ms:
                    late.setdefault(key, set()).add(one.received_ms // 60_000)
    return {
        key: (
            len(values), sum(row[4] for row in values), sum(row[4] ** 2 for row in values),
            min(row[4] for row in values), max(row[4] for row in values), min(values), max(values),
            tuple(sorted(late.get(key, ()))),
        )
        for key, values in rows.items()
    }  # fmt: skip


def quickly(windows: Windows) -> dict[Key, tuple[object, ...]]:
    keys = list(
        zip(*(c.tolist() for c in (windows.device_key, windows.signal, windows.width_s, windows.start_s)), strict=True)
    )
    assert keys == sorted(keys), "rows are locked in key order"
    edges = [
        list(zip(*(c.tolist() for c in (e.ms, e.boot_epoch, e.seq, e.pos, e.units)), strict=True))
        for e in (windows.first, windows.last)
    ]
    columns = (
        windows.n.tolist(), as_ints(windows.total), as_ints(windows.squares), windows.lowest.tolist(),
        windows.highest.tolist(), *edges, [windows.late.get(n, ()) for n in range(len(windows))],
    )  # fmt: skip
    return dict(zip(keys, zip(*columns, strict=True), strict=True))


@settings(max_examples=200, deadline=None)
@given(sent(), st.randoms())
def test_windows_are_those_of_the_definition_in_any_order(packets: list[Sent], random: object) -> None:
    shuffled = list(packets)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    windows, latest = reduce(packets)
    again, latest_again = reduce(shuffled)
    assert quickly(windows) == quickly(again) == slowly(packets)
    assert sorted(latest) == sorted(latest_again)
    best: dict[tuple[int, int], tuple[int, ...]] = {}
    for one in packets:
        for pos, offset in enumerate(one.offsets):
            row = (one.base_ms + offset, one.epoch, one.seq, pos)
            key = (CARS[one.car].key, one.signal)
            best[key] = max(best.get(key, row), row)
    assert sorted(latest) == sorted((*key, *row) for key, row in best.items())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), unique=True))
def test_range_literals_hold_exactly_the_numbers(pairs: list[tuple[int, int]]) -> None:
    groups, numbers = (np.array([pair[n] for pair in pairs], np.int64) for n in (0, 1))
    for group, text in enumerate(range_literals(groups, numbers, 4)):
        found = set()
        for part in text.strip("{}").replace("),", ");").split(";"):
            if part:
                first, last = part.strip("[)").split(",")
                assert first not in found
                found |= set(range(int(first), int(last)))
        assert found == {number for owner, number in pairs if owner == group}


def test_the_lowest_offset_wins_among_copies() -> None:
    packets = [Sent(0, 1, seq, 1, T0, (0,), (1,), (0,), T0) for seq in (3, 1, 3, 3, 1)]
    (part,) = assemble(table(in_log_order([one.frame() for one in packets])), TOPICS)
    decoded = decode(part, catalogue_scales())
    eligible = np.array([False, True, True, True, True])
    assert repeats(decoded.packets, eligible).tolist() == [False, False, False, True, True]
