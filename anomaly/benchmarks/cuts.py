"""Is the stream's answer the offline answer? One pass over a series against random pieces, the state as bytes between.

Between two pieces the stream's way is gone: the state is written, read again, and goes on. Both ways of asking are
used, ``run`` for pieces of any length and ``step`` for pieces of few moments. What is compared is every field of
every verdict, bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from anomaly.base import Detector, Readings, Verdict, findings_of
from anomaly.benchmarks import drives, nab_run, skab
from anomaly.detectors.own_past import OwnPast
from anomaly.types import Floats, Ints

FIELDS = ("score", "threshold", "known", "channel", "low", "high")
SHORT = 8
"""Pieces of at most so many moments are fed through ``step``."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Readings of series fed both ways, where they were cut, alarms in one pass, and readings judged differently."""

    series: int = 0
    readings: int = 0
    cuts: int = 0
    alarms: int = 0
    different: int = 0

    def __add__(self, other: Compared) -> Compared:
        return Compared(
            self.series + other.series, self.readings + other.readings, self.cuts + other.cuts,
            self.alarms + other.alarms, self.different + other.different,
        )  # fmt: skip

    def row(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in Compared.__slots__}


def compare(detector: Detector, at_ms: Ints, values: Floats, rng: np.random.Generator, cuts: int) -> Compared:
    """One series of one device, whole and in pieces."""
    count = len(values)
    nothing = np.zeros(count, np.int64)
    readings = Readings(nothing, at_ms, values, nothing)
    whole = detector.run(detector.start(1), readings)[1]
    places = np.unique(rng.integers(1, max(count, 2), cuts))
    state, parts, findings = detector.start(1), [], 0
    for piece in np.split(np.arange(count), places):
        state = detector.load(detector.dump(state))
        part = readings.take(piece)
        if len(piece) > SHORT:
            state, verdict = detector.run(state, part)
            findings += len(findings_of(part, verdict))
            parts.append(verdict)
            continue
        for row in piece:
            one = readings.take(slice(int(row), int(row) + 1))
            parts.append(detector.score(state, one))
            state, found = detector.step(state, one)
            findings += len(found)
    alarms = int(whole.alarm.sum())
    different = _different(whole, Verdict.join(parts)) + abs(findings - alarms)
    return Compared(1, count, len(places), alarms, different)


def _different(left: Verdict, right: Verdict) -> int:
    unlike = np.zeros(len(left.score), np.bool_)
    for name in FIELDS:
        one, other = getattr(left, name), getattr(right, name)
        unlike |= ~((one == other) | ((one != one) & (other != other)))
    return int(unlike.sum())


def table(
    series: Sequence[nab_run.Input],
    runs: Sequence[skab.Run],
    recorded: Sequence[drives.Drive],
    rows: int,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Every data set's detectors over the first ``rows`` readings of each series."""
    rng = np.random.default_rng(seed)
    cases: dict[str, Iterable[tuple[Detector, Ints, Floats]]] = {
        "nab, own_past": ((OwnPast(), one.at_ms, one.values[:, None]) for one in series),
        "skab, mahalanobis": _rig("mahalanobis", runs),
        "skab, subspace": _rig("subspace", runs),
        "drives, limits": ((drives.LIMITS, one.at_ms, one.values) for one in recorded),
        "drives, air flow": _flows(recorded),
    }
    return {name: _all(case, rows, rng).row() for name, case in cases.items()}


def _all(case: Iterable[tuple[Detector, Ints, Floats]], rows: int, rng: np.random.Generator) -> Compared:
    found = Compared()
    for detector, at_ms, values in case:
        cuts = max(2, min(len(values), rows) // 50)
        found += compare(detector, at_ms[:rows], values[:rows], rng, cuts)
    return found


def _rig(kind: str, runs: Sequence[skab.Run]) -> Iterable[tuple[Detector, Ints, Floats]]:
    for run in runs:
        detector = skab.trained(kind, run.values[: skab.TRAIN_ROWS])
        yield detector, 1_000 * np.arange(len(run.values)), run.values


def _flows(recorded: Sequence[drives.Drive]) -> Iterable[tuple[Detector, Ints, Floats]]:
    if recorded:
        flow = drives.flow_detector(recorded[::2])
        yield from ((flow, one.at_ms, drives.explained(one.values)) for one in recorded)
