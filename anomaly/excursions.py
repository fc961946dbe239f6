"""From verdicts to what is said of an excursion: opened, worse, still there, closed.

The accumulator decides when an excursion is called and when it is over. Between the two it is told again when its
severity rises and once per minute of event time, so what is said depends on the readings alone, never on how they
were cut into batches. Each telling carries the next ``revision``; the last one of an excursion says when it closed.
"""

from __future__ import annotations

import numpy as np

from anomaly.accumulate import Change
from anomaly.base import Readings, Verdict, rounds
from anomaly.deployment import Deployment
from anomaly.types import Bools, Ints, Rows
from contracts.finding import Severity

TELL_MS = 60_000
"""An open excursion is told again after this much event time."""

EXCURSION = np.dtype(
    [
        ("open", "?"), ("lost", "?"), ("severity", "u1"), ("channel", "<i2"), ("regime", "<i4"), ("readings", "<i4"),
        ("revision", "<i4"), ("told_ms", "<i8"), ("lost_ms", "<i8"), ("worst", "<f8"), ("threshold", "<f8"),
        ("observed", "<f8"), ("low", "<f8"), ("high", "<f8"),
    ]
)  # fmt: skip
"""State of one device and deployment, beside the accumulator's."""

TOLD = np.dtype(
    [
        ("deployment", "<i2"), ("device", "<i4"), ("lane", "u1"), ("lost", "?"), ("severity", "u1"),
        ("channel", "<i2"), ("regime", "<i4"), ("readings", "<i4"), ("revision", "<i4"), ("started_ms", "<i8"),
        ("at_ms", "<i8"), ("closed_ms", "<i8"), ("score", "<f8"), ("threshold", "<f8"), ("observed", "<f8"),
        ("low", "<f8"), ("high", "<f8"),
    ]
)  # fmt: skip
"""What is said; ``closed_ms`` -1: still open."""

_WORST = ("channel", "regime", "threshold", "observed", "low", "high")


def fresh(deployment: Deployment, devices: int) -> tuple[Rows, Rows]:
    """(accumulator's rows, excursions) of devices of which nothing was seen."""
    rows = np.zeros(devices, EXCURSION)
    rows["worst"], rows["lost_ms"] = -np.inf, -1
    return deployment.accumulator.start(devices), rows


def follow(
    deployment: Deployment, state: tuple[Rows, Rows], readings: Readings, verdict: Verdict, lost_ms: Ints
) -> tuple[tuple[Rows, Rows], Rows]:
    """Readings of any number per device, in order of event time per device; the given state stays as it was.

    ``lost_ms``: per reading the newest event time of readings that came too late, known by then. What is told comes
    back in order of time, ``device`` being the row of the state.
    """
    counts, rows = state
    quiet = (counts["count"] == 0) & ~rows["open"]
    if not verdict.alarm.any() and quiet[readings.device].all():
        return state, np.zeros(0, TOLD)
    rows = rows.copy()
    told: list[Rows] = []
    for chosen in rounds(readings.device):
        part, said = readings.take(chosen), verdict.take(chosen)
        idle = counts["count"][part.device] == 0
        counts, change = deployment.accumulator.step(counts, part.device, part.at_ms, said)
        mine = rows[part.device]
        begun = np.where(mine["open"], change.started_at_ms, counts["first"][part.device])
        _look(mine, part, said, idle & ~mine["open"])
        _lose(mine, begun, np.maximum(lost_ms[chosen], mine["lost_ms"]), counts["count"][part.device] > 0)
        told.append(_tell(deployment, mine, part, change))
        rows[part.device] = mine
    return (counts, rows), np.concatenate(told)


def end(deployment: Deployment, state: tuple[Rows, Rows], ended: Ints) -> tuple[tuple[Rows, Rows], Rows]:
    """The deployment no longer judges ``ended`` (rows of the state): what is open there closes at its ``until_ms``."""
    counts, rows = state[0].copy(), state[1].copy()
    counts[ended] = deployment.accumulator.start(1)[0]
    hit = ended[rows["open"][ended]]
    told = np.zeros(len(hit), TOLD)
    rows["revision"][hit] += 1
    told["device"], told["started_ms"] = hit, state[0]["started"][hit]
    told["at_ms"] = told["closed_ms"] = deployment.until_ms
    told["score"] = rows["worst"][hit]
    for name in ("lost", "severity", "readings", "revision", *_WORST):
        told[name] = rows[name][hit]
    rows["open"][ended], rows["severity"][ended] = False, 0
    return (counts, rows), told


def _look(mine: Rows, readings: Readings, verdict: Verdict, begins: Bools) -> None:
    """Remember the worst reading since the counter left zero."""
    alarm = verdict.alarm
    new = begins & alarm
    mine["worst"] = np.where(new, -np.inf, mine["worst"])
    mine["readings"] = np.where(new, 0, mine["readings"]) + alarm
    mine["lost"] &= ~new
    worse = alarm & (verdict.score > mine["worst"])
    observed = readings.values[np.arange(len(readings)), verdict.channel]
    here = {
        "channel": verdict.channel, "regime": readings.regime, "threshold": verdict.threshold,
        "observed": observed, "low": verdict.low, "high": verdict.high,
    }  # fmt: skip
    for name in _WORST:
        mine[name] = np.where(worse, here[name], mine[name])
    mine["worst"] = np.where(worse, verdict.score, mine["worst"])


def _lose(mine: Rows, begun: Ints, lost_ms: Ints, counting: Bools) -> None:
    mine["lost"] |= (counting | mine["open"]) & (lost_ms >= begun)
    mine["lost_ms"] = lost_ms


def _tell(deployment: Deployment, mine: Rows, readings: Readings, change: Change) -> Rows:
    """Advance what was told and give the tellings of this round."""
    ratio = np.divide(mine["worst"], mine["threshold"], out=np.zeros(len(mine)), where=mine["threshold"] > 0)
    level = np.minimum(int(deployment.severity) + (ratio >= deployment.worse), int(Severity.CRITICAL))
    open_now = (mine["open"] | change.opened) & ~change.closed
    rises = open_now & (level > mine["severity"])
    due = open_now & (readings.at_ms - mine["told_ms"] >= TELL_MS)
    tells = change.opened | change.closed | rises | due
    mine["revision"] = np.where(change.opened, 0, mine["revision"]) + tells
    mine["severity"] = np.where(open_now | change.closed, level, 0)
    mine["told_ms"] = np.where(tells, readings.at_ms, mine["told_ms"])
    mine["open"] = open_now
    hit = np.flatnonzero(tells)
    told = np.zeros(len(hit), TOLD)
    told["device"], told["started_ms"] = readings.device[hit], change.started_at_ms[hit]
    told["at_ms"], told["score"] = readings.at_ms[hit], mine["worst"][hit]
    told["closed_ms"] = np.where(change.closed[hit], readings.at_ms[hit], -1)
    for name in ("lost", "severity", "readings", "revision", *_WORST):
        told[name] = mine[name][hit]
    mine["severity"] = np.where(open_now, mine["severity"], 0)
    return told
