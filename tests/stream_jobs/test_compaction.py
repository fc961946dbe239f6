"""Packets as blocks and back, without a database: every reading survives, whatever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_jobs.compaction import SLOT_MS, HotPackets, compact
from stream_jobs.scales import catalogue_scales
from tests.stream_jobs.history_rows import SIGNALS, START_MS

VALUES = st.one_of(
    st.integers(-(2**40), 2**40).map(lambda units: units / 100),
    st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 1e-9, 0.1, 2.0**53, -1.5]),
)
SAMPLE = st.tuples(
    st.sampled_from([signal.number for signal in SIGNALS[:3]] + [32_000]),  # one that the catalogue does not know
    st.integers(-2_000, 2_000) | st.sampled_from([-(2**31), 2**31 - 1]),
    VALUES,
    st.sampled_from([0, 0, 1, 66]),
)
PACKET = st.tuples(
    st.integers(1, 3), st.integers(1, 300), st.integers(-(10**6), 10**6), st.integers(0, 2**33),
    st.lists(SAMPLE, max_size=6),
)  # fmt: skip


def hot(packets: list[Any]) -> HotPackets:
    samples = [sample for packet in packets for sample in packet[4]]
    base = [START_MS + packet[2] for packet in packets]
    first = [at + min([one[1] for one in packet[4]] or [0]) for at, packet in zip(base, packets, strict=True)]
    counts = np.array([len(packet[4]) for packet in packets], np.int64)
    received = np.array([START_MS + packet[3] for packet in packets], np.int64)
    return HotPackets(
        7, np.ones(len(packets), np.int64), np.array([one[0] for one in packets], np.int64),
        np.array([one[1] for one in packets], np.int64), received, np.array(first, np.int64), np.array(base, np.int64),
        received * 1000 + 77, counts, counts % 2, counts % 3 > 0,
        np.array([[one[0], one[1] % 256] * 16 for one in packets], np.uint8).reshape(-1, 32), counts,
        np.repeat(np.array(base, np.int64), counts) + np.array([one[1] for one in samples], np.int64),
        np.array([one[0] for one in samples], np.int64), np.array([one[2] for one in samples], np.float64),
        np.array([one[3] for one in samples], np.int64),
    )  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.lists(PACKET, max_size=25, unique_by=lambda one: one[:2]))
def test_every_reading_comes_back(packets: list[Any]) -> None:
    given_ = hot(packets)
    runs, blocks = compact(given_, catalogue_scales())
    found, wanted = [], []
    for block in blocks:
        step = block.steps.cumsum() + block.base_ms
        units = block.units.cumsum() + (block.base_units or 0)
        for at in range(len(block)):
            whole = int(block.units[at]) if block.whole else int(units[at])
            value = float("nan") if not block.known[at] else (
                whole / 10.0**-block.exponent if block.exponent < 0 else whole * 10.0**block.exponent
            )  # fmt: skip
            if block.raw is not None:
                value = float(block.raw[at])
            quality = 0 if block.qualities is None else int(block.qualities[at])
            seq, pos = block.base_seq + int(block.seq_steps[: at + 1].sum()), int(block.pos_steps[: at + 1].sum())
            found.append((block.boot_epoch, seq, pos, int(step[at]), block.signal, repr(value), quality))
        assert block.last_ms == step.max() and block.base_ms == step.min()
    for epoch, seq, base, _, samples in packets:
        for pos, (signal, offset, value, quality) in enumerate(samples, 1):
            wanted.append((epoch, seq, pos, START_MS + base + offset, signal, repr(value), quality))
    assert sorted(found) == sorted(wanted)
    assert {(block.boot_epoch, block.run_seq) for block in blocks} <= {(run.boot_epoch, run.first_seq) for run in runs}


@settings(max_examples=80, deadline=None)
@given(st.lists(PACKET, max_size=25, unique_by=lambda one: one[:2]))
def test_every_packet_comes_back(packets: list[Any]) -> None:
    given_ = hot(packets)
    runs, _ = compact(given_, catalogue_scales())
    found = []
    for run in runs:
        received = run.received_ms + run.received_steps.cumsum()
        first = run.first_ms + run.first_steps.cumsum()
        assert max(received[run.present]) == run.received_to_ms and run.present[0] and run.present[-1]
        assert len({int(one) // SLOT_MS for one in first[run.present]}) == 1
        for at in np.flatnonzero(run.present).tolist():
            found.append((
                run.boot_epoch, run.first_seq + at, int(received[at]), int(first[at]),
                int(first[at] + run.spans_ms[at]),
                int(run.stored_us[at] + 1000 * received[at]), int(run.samples[at]), int(run.lanes[at]),
                bool(run.clock_trusted[at]), run.sha256s[32 * at : 32 * at + 32],
            ))  # fmt: skip
    assert sorted(found) == sorted(
        (
            int(given_.boot_epoch[at]), int(given_.seq[at]), int(given_.received_ms[at]), int(given_.first_ms[at]),
            int(given_.last_ms[at]), int(given_.stored_us[at]), int(given_.believed[at]), int(given_.lane[at]),
            bool(given_.clock_trusted[at]), given_.sha256[at].tobytes(),
        )
        for at in range(len(packets))
    )  # fmt: skip
    assert len({(run.boot_epoch, run.first_seq) for run in runs}) == len(runs)
