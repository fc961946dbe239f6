"""Detection over a shard: the same answer however the log is cut, and the same as one reading after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anomaly.accumulate import Accumulator
from anomaly.base import Readings
from anomaly.deployed import DEPLOYED
from anomaly.deployment import Deployment, Regime, check_set, set_version
from anomaly.detectors.ewma_cusum import EwmaCusum
from anomaly.detectors.limits import Limits
from anomaly.detectors.peers import Peers
from anomaly.errors import BadParameters, BadState
from anomaly.excursions import TELL_MS, TOLD
from anomaly.moments import SAMPLE, STEP_MS
from anomaly.shard import Shard, split
from anomaly.types import Rows
from contracts.finding import Severity

WAIT_MS = 5_000
T0 = 1_700_000_000_000
HOT = Deployment(
    "hot", Limits(low=(-40.0,), high=(100.0,), rate=(float("inf"),)), (21,), ("car",), "coolant", "Stop.",
    Severity.WARNING, Accumulator(call_at=3, ceiling=10), worse=1.5,
)  # fmt: skip
DRIFT = Deployment(
    "drift", EwmaCusum(signals=1, regimes=2, warm=20, floor=8.0), (50, 20), ("car",), "charging", "Look.",
    Severity.NOTE, Accumulator(call_at=4, ceiling=12), hold_ms=3_000, regime=Regime(1, (500.0, 2_000.0)),
)  # fmt: skip
SHARD = Shard((HOT, DRIFT), WAIT_MS)


def log(seed: int, devices: int = 5, seconds: int = 240) -> Rows:
    """Packets of a few seconds, a little out of order, some twice, some hopelessly late; every series has faults."""
    rng = np.random.default_rng(seed)
    packets: list[tuple[float, Rows]] = []
    for device in range(1, devices + 1):
        at, seq = 0, 0
        while at < seconds:
            size = int(rng.integers(1, 4))
            seq += 1
            rows = [row for second in range(at, at + size) for row in _second(rng, device, second, seq, seconds)]
            packet = np.array([(*row[:6], pos, row[6]) for pos, row in enumerate(rows)], SAMPLE)
            delay = 20.0 if rng.random() < 0.03 else float(rng.random() * 1.5)
            packets.append((at + size + delay, packet))
            if rng.random() < 0.1:
                packets.append((at + size + delay + float(rng.random()), packet))
            at += size
    return np.concatenate([packet for _, packet in sorted(packets, key=lambda pair: pair[0])])


def _second(rng: np.random.Generator, device: int, second: int, seq: int, seconds: int) -> list[tuple[float, ...]]:
    lane, at_ms = int(second > seconds * 0.9 and device == 2), T0 + 1_000 * second + int(rng.integers(0, 900))
    hot = 60.0 if device % 2 and seconds // 3 < second < seconds // 2 else 0.0
    sag = -3.0 if device == 4 and second > seconds // 2 else 0.0
    values = [(21, 80.0 + hot + rng.normal()), (50, 14.0 + sag + 0.05 * rng.normal()), (20, 900.0 + 3 * second)]
    return [(device, lane, signal, at_ms, 1, seq, value) for signal, value in values if rng.random() > 0.05]


def told_of(samples: Rows, cuts: list[int], shard: Shard = SHARD, through_bytes: bool = True) -> tuple[Rows, int]:
    """The last telling of every excursion, and how many readings were late."""
    state, told, late = shard.start(), [np.zeros(0, TOLD)], 0
    for part in np.split(samples, cuts):
        step = shard.run(shard.load(shard.dump(state)) if through_bytes else state, part)
        state, late = step.state, late + step.late
        told.append(step.told)
    rows = np.sort(np.concatenate(told), order=["deployment", "device", "lane", "started_ms", "revision"])
    keys = rows[["deployment", "device", "lane", "started_ms"]]
    return rows[np.append(keys[1:] != keys[:-1], True)], late


def same(left: Rows, right: Rows) -> bool:
    """Equal, where no number is no number."""
    return left.tobytes() == right.tobytes()


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 3), cuts=st.lists(st.integers(0, 4_000), max_size=12))
def test_how_the_log_is_cut_changes_nothing(seed: int, cuts: list[int]) -> None:
    samples = log(seed)
    whole, late = told_of(samples, [])
    assert len(whole) >= 4 and late > 0
    assert (told_of(samples, sorted(min(cut, len(samples)) for cut in cuts))[0]).tobytes() == whole.tobytes()


def test_every_reading_by_itself_gives_the_same() -> None:
    samples = log(7, devices=2, seconds=90)
    assert same(told_of(samples, list(range(len(samples))))[0], told_of(samples, [])[0])


def test_disorder_within_the_watermark_changes_nothing() -> None:
    """Packets shuffled by less than the watermark, and sent again, against the same packets in order and once."""
    rng = np.random.default_rng(1)
    samples = log(5)
    in_order = samples[np.lexsort((samples["pos"], samples["seq"], samples["device"]))]
    _, first = np.unique(in_order[["device", "seq", "pos"]], return_index=True)
    in_order = in_order[np.sort(first)]
    packets = np.split(in_order, np.flatnonzero(in_order["seq"][1:] != in_order["seq"][:-1]) + 1)
    starts = np.array([packet["at_ms"].max() for packet in packets]) + rng.integers(0, 1_500, len(packets))
    shuffled = [packets[at] for at in np.argsort(starts, kind="stable")]
    twice = [packet for packet in shuffled for _ in range(1 + int(rng.random() < 0.2))]
    calm, none_late = told_of(
        np.concatenate([packets[at] for at in np.argsort([p["at_ms"].max() for p in packets])]), []
    )
    wild, late = told_of(np.concatenate(twice), [100, 101, 900])
    assert none_late == late == 0
    assert len(calm) > 3 and same(calm, wild)


def test_one_moment_after_the_other_says_the_same() -> None:
    """The slow way: cells in a dictionary, one call of detector and accumulator per moment of one device."""
    samples = log(3)
    deployed = enumerate([HOT, DRIFT])
    expected = sorted((number, *said) for number, one in deployed for said in _slowly(samples, one))
    found = told_of(samples, [])[0]
    assert [
        (int(row["deployment"]), int(row["device"]), int(row["lane"]), int(row["started_ms"]), int(row["readings"]),
         float(row["score"]), int(row["closed_ms"]))
        for row in found
    ] == expected  # fmt: skip


def _slowly(samples: Rows, deployment: Deployment) -> list[tuple[float, ...]]:
    said: dict[tuple[int, int, int], tuple[float, ...]] = {}
    for device, lane in sorted({(int(d), int(n)) for d, n in zip(samples["device"], samples["lane"], strict=True)}):
        mine = samples[(samples["device"] == device) & (samples["lane"] == lane)]
        state, counts = deployment.detector.start(1), deployment.accumulator.start(1)
        open_at, worst, alarms, told_ms, severity = -1, -np.inf, 0, 0, 0
        last = [(np.nan, 0)] * len(deployment.signals)
        for at_ms, values in _cells(mine, deployment.signals):
            last = [(v, at_ms) if np.isfinite(v) else old for v, old in zip(values, last, strict=True)]
            if not np.isfinite(values[0]):
                continue
            row = np.array([[v if np.isfinite(v) or at_ms - since > deployment.hold_ms else old
                             for v, (old, since) in zip(values, last, strict=True)]])  # fmt: skip
            regime = deployment.regime.of(row)
            readings = Readings(np.zeros(1, int), np.array([at_ms]), row[:, : deployment.detector.channels], regime)
            state, verdict = deployment.detector.run(state, readings)
            idle = counts["count"][0] == 0 and open_at < 0
            counts, change = deployment.accumulator.step(counts, readings.device, readings.at_ms, verdict)
            if verdict.alarm[0]:
                worst, alarms = (
                    (float(verdict.score[0]), 1) if idle else (max(worst, float(verdict.score[0])), alarms + 1)
                )
            if change.opened[0]:
                open_at = int(change.started_at_ms[0])
            if open_at < 0:
                continue
            level = int(deployment.severity) + (worst / verdict.threshold[0] >= deployment.worse)
            if change.opened[0] or change.closed[0] or level > severity or at_ms - told_ms >= TELL_MS:
                closed = at_ms if change.closed[0] else -1
                said[device, lane, open_at] = (device, lane, open_at, alarms, worst, closed)
                told_ms, severity = at_ms, level
            if change.closed[0]:
                open_at, severity = -1, 0
    return list(said.values())


def _cells(mine: Rows, signals: tuple[int, ...]) -> list[tuple[int, list[float]]]:
    """What is not late, by second."""
    newest, before, packet = -1, -1, -1
    held: dict[tuple[int, int], Any] = {}
    for row in mine:
        if row["seq"] != packet:
            packet, before = row["seq"], newest
        newest = max(newest, int(row["at_ms"]))
        if before >= 0 and row["at_ms"] < before - WAIT_MS:
            continue
        key = (int(row["at_ms"]) // STEP_MS * STEP_MS, int(row["signal"]))
        if key not in held or tuple(held[key])[3:7] <= tuple(row)[3:7]:
            held[key] = row
    ready = sorted({at for at, _ in held if at + STEP_MS <= newest - WAIT_MS})
    rows = [(at, [float(held[at, s]["value"]) if (at, s) in held else np.nan for s in signals]) for at in ready]
    return [(at, values) for at, values in rows if np.isfinite(values).any()]


def test_an_excursion_is_told_from_its_beginning_to_its_end() -> None:
    at = np.arange(200)
    samples = np.zeros(200, SAMPLE)
    samples["device"], samples["signal"], samples["at_ms"], samples["seq"] = 1, 21, T0 + 1_000 * at, at + 1
    samples["value"] = np.where((at >= 50) & (at < 130), np.where(at == 60, 300.0, 120.0), 90.0)
    state, said = SHARD.start(), []
    for part in np.split(samples, range(1, 200)):
        step = SHARD.run(state, part)
        state = step.state
        said += [(int(t["revision"]), int(t["at_ms"] - T0) // 1_000, int(t["severity"]), int(t["closed_ms"]) > 0)
                 for t in step.told]  # fmt: skip
    assert said == [(1, 52, 2, False), (2, 60, 3, False), (3, 120, 3, False), (4, 139, 3, True)]
    last = told_of(samples, [])[0][0]
    assert (int(last["started_ms"]) - T0, float(last["observed"]), int(last["readings"])) == (50_000, 300.0, 80)


def test_readings_lost_are_named_on_the_finding_they_concern() -> None:
    at = np.arange(120)
    samples = np.zeros(121, SAMPLE)
    samples["device"], samples["signal"], samples["seq"] = 1, 21, np.arange(121) + 1
    samples["at_ms"] = T0 + 1_000 * np.append(at, 60)
    samples["value"] = np.where(samples["at_ms"] >= T0 + 50_000, 120.0, 90.0)
    late_one = np.concatenate([samples[:100], samples[120:], samples[100:120]])
    (whole,), _ = told_of(samples[:120], [])
    (torn,), late = told_of(late_one, [30, 101])
    (torn_too,), _ = told_of(late_one, [])
    assert late == 1 and not whole["lost"] and torn["lost"] and torn_too["lost"]


def test_a_state_of_another_set_is_refused() -> None:
    state = SHARD.run(SHARD.start(), log(1)).state
    data = SHARD.dump(state)
    assert SHARD.dump(SHARD.load(data)) == data
    with pytest.raises(BadState, match="start afresh"):
        Shard((HOT,), WAIT_MS).load(data)
    with pytest.raises(BadState, match="damaged"):
        SHARD.load(data[:-5] + b"12345")


def test_a_version_tells_of_everything_that_changes_answers() -> None:
    assert set_version((HOT, DRIFT)) == set_version((DRIFT, HOT))
    for other in (
        replace(HOT, severity=Severity.ALARM), replace(HOT, worse=2.0), replace(HOT, hold_ms=1),
        replace(HOT, accumulator=Accumulator(call_at=4, ceiling=10)),
        replace(HOT, detector=Limits(low=(-41.0,), high=(100.0,), rate=(float("inf"),))),
    ):  # fmt: skip
        assert other.version != HOT.version
    assert replace(HOT, advice="Wait.").version == HOT.version


def test_a_set_that_cannot_work_is_refused() -> None:
    with pytest.raises(BadParameters, match="share a name"):
        check_set((HOT, replace(DRIFT, name="hot")))
    peers = Peers.example()
    with pytest.raises(BadParameters, match="compares devices"):
        check_set((replace(HOT, detector=peers, signals=tuple(range(1, peers.channels + 1))),))
    with pytest.raises(BadParameters, match="a signal per channel"):
        replace(HOT, signals=())


def test_the_declared_set_has_a_small_state() -> None:
    shard = Shard(DEPLOYED, WAIT_MS)
    assert check_set(DEPLOYED) == DEPLOYED
    samples = np.zeros(len(shard.signals), SAMPLE)
    samples["device"], samples["signal"], samples["at_ms"] = 1, shard.signals, T0
    later = samples.copy()
    later["at_ms"], later["seq"] = T0 + 60_000, 1
    small = len(shard.dump(shard.run(shard.start(), samples).state))
    state = shard.run(shard.run(shard.start(), samples).state, later).state
    assert len(shard.dump(state)) - small < 4_096  # one device that measures everything


@given(st.integers(1, 9))
def test_shards_hold_every_reading_once(shards: int) -> None:
    samples = log(2, devices=4, seconds=30)
    parts = dict(split(samples, shards))
    assert sum(len(part) for part in parts.values()) == len(samples)
    assert all((part["device"] % shards == number).all() for number, part in parts.items())
