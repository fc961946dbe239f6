"""Disorder changes no final value: through Kafka, Spark and PostgreSQL, and over the pure merge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import psycopg
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.packet import Block
from tests.stream_jobs.build import RPM, SPEED, T0, Device, Frame
from tests.stream_jobs.disorder import Disorder, disordered
from tests.stream_jobs.fix_ingest import Line
from tests.stream_jobs.test_merge import Key, Sent, quickly, reduce, sent

STEP_MS, PACKETS = 10_000, 250
Due = tuple[int, bytes]
"""When a packet is whole, and its bytes."""

VALUES = """
SELECT device_key, signal, width_s, starts_at, n, sum_units, sumsq_units, min_units, max_units, first_units, first_ms,
    first_epoch, first_seq, first_pos, last_units, last_ms, last_epoch, last_seq, last_pos
FROM window_aggregates ORDER BY 1, 2, 3, 4"""
READINGS = "SELECT device, boot_epoch, seq, signal, measured_at, value, quality FROM readings ORDER BY 1, 2, 3, 4, 5"
LATEST = "SELECT device_key, signal, measured_ms, boot_epoch, seq, pos, val FROM latest_values ORDER BY 1, 2"
SEEN = "SELECT device_key, boot_epoch, ranges::text, packets, samples FROM seen_ranges ORDER BY 1, 2"
SAID_LAST = """
SELECT DISTINCT ON (device, signal, width_s, starts_at) device, signal, width_s, starts_at, n, min, max, mean, last
FROM publications ORDER BY device, signal, width_s, starts_at, publication DESC"""
REVISED = "SELECT count(*) FROM windows WHERE revision > 0"
DERIVED = (
    "packet_rows, window_aggregates, window_publications, rollup_due, latest_values, seen_ranges, quarantined, outbox"
)


def packets(device: Device, seed: int) -> list[Due]:
    """A drive of forty minutes, a packet of two signals every ten seconds."""
    dice = random.Random(seed)
    offsets = tuple(range(0, STEP_MS, 2_000))
    made = []
    for seq in range(1, PACKETS + 1):
        blocks = [
            Block(signal, -2 if signal == SPEED else -1, 0, offsets, tuple(dice.randint(0, 20_000) for _ in offsets))
            for signal in (SPEED, RPM)
        ]
        made.append((T0 + (seq + 1) * STEP_MS, device.packet(seq, *blocks, base_ms=T0 + seq * STEP_MS)))
    return made


def stamped(device: Device, frames: Sequence[Due]) -> list[Frame]:
    """Received one after the other, none before it is whole."""
    now_ms = accumulate((due_ms for due_ms, _ in frames), max)
    return [(frame, device.stamp(at_ms + 700)) for at_ms, (_, frame) in zip(now_ms, frames, strict=True)]


def final_rows(heart: Line) -> list[list[tuple[object, ...]]]:
    heart.close_windows()
    return [heart.rows(statement) for statement in (VALUES, READINGS, LATEST, SEEN, SAID_LAST)]


def test_a_disordered_run_ends_with_the_rows_of_the_ordered_one(heart: Line) -> None:
    heart.sink = "driver"
    for seed, device in enumerate(heart.devices.values()):
        heart.send_from(device, stamped(device, packets(device, seed)))
    heart.drain(max_offsets=250, after_batch=heart.close_windows)
    ordered = final_rows(heart)
    assert heart.rows(REVISED) == [(0,)] and len(ordered[0]) > 1_700
    with psycopg.connect(heart.superuser_dsn, autocommit=True) as owner:
        owner.execute(f"TRUNCATE {DERIVED}")
    for seed, device in enumerate(heart.devices.values()):
        mixed = disordered(packets(device, seed), random.Random(f"disorder {seed}"))
        heart.send_from(device, stamped(device, mixed))
    heart.drain(max_offsets=250, after_batch=heart.close_windows)
    assert final_rows(heart) == ordered
    ((revised,),) = heart.rows(REVISED)
    assert revised > 50, "the disorder must have reached the windows after they were said"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(), unique=True, max_size=80), st.randoms(use_true_random=False), st.booleans())
def test_disorder_loses_and_doubles_nothing(entries: list[int], dice: random.Random, wild: bool) -> None:
    how = Disorder(3, 0.3, 0.3, 0.5, 0.5) if wild else None
    assert sorted(disordered(entries, dice, how)) == sorted(entries)


@settings(max_examples=80, deadline=None)
@given(sent(), st.randoms(use_true_random=False), st.integers(1, 4))
def test_disordered_batches_merge_to_the_windows_of_the_whole(
    packets: list[Sent], dice: random.Random, batch: int
) -> None:
    whole, _ = reduce(packets)
    mixed = disordered(packets, dice, Disorder(2, 0.3, 0.3, 0.5, 0.5))
    merged: dict[Key, tuple[object, ...]] = {}
    for part in in_batches(mixed, batch):
        windows, _ = reduce(part)
        for key, row in quickly(windows).items():
            merged[key] = combine(merged[key], row) if key in merged else row
    assert merged == quickly(whole)


def in_batches(packets: Sequence[Sent], size: int) -> Iterator[list[Sent]]:
    for at in range(0, len(packets), size):
        yield list(packets[at : at + size])


def combine(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Two partial windows as the store merges them: n, sum, squares, lowest, highest, first, last, late minutes."""
    n, total, squares, low, high, first, last, late = zip(a, b, strict=True)
    minutes = sorted({minute for part in late for minute in part})
    return sum(n), sum(total), sum(squares), min(low), max(high), min(first), max(last), tuple(minutes)
