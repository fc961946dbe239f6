"""The deployed detectors on machines that are healthy, and on such with an injected fault; rates with their exposure.

Whoever calls brings the machines as moments: event times, and the values of the signals that were read, a machine in
each column. ``Watch`` is what a shard does with a deployment when nothing is late (``anomaly.shard``; a test holds
them equal), so that months of many machines cost one call a second. Every excursion that is called counts as an
alert; one root cause with several excursions is thus counted more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anomaly import excursions
from anomaly.base import Readings
from anomaly.deployment import Deployment
from anomaly.metrics import poisson_upper
from anomaly.moments import NEVER, Moments, held
from anomaly.types import Floats, Ints, Rows


@dataclass(frozen=True, slots=True)
class Moment:
    """``values`` by signal number, absent when no machine read it now; ``driven_s`` is the exposure so far."""

    at_ms: Ints
    values: Mapping[int, Floats]


class Watch:
    """One deployment over ``count`` machines whose readings come in order of time."""

    def __init__(self, deployment: Deployment, count: int) -> None:
        self._deployment = deployment
        self._state = deployment.detector.start(count)
        self._called = excursions.fresh(deployment, count)
        self._last = np.full((count, len(deployment.signals)), np.nan)
        self._last_ms = np.zeros((count, len(deployment.signals)), np.int64)
        self._every = np.arange(count)

    def step(self, moment: Moment) -> Rows:
        """What is told at this moment (``excursions.TOLD``)."""
        one = self._deployment
        if not any(signal in moment.values for signal in one.signals):
            return np.zeros(0, excursions.TOLD)
        absent = np.full(len(self._every), np.nan)
        values = np.stack([moment.values.get(signal, absent) for signal in one.signals], axis=1)
        rows = Moments(self._every, moment.at_ms, values)
        filled, self._last, self._last_ms = held(rows, self._last, self._last_ms, one.hold_ms)
        awaited = np.flatnonzero(np.isfinite(values[:, list(one.awaits)]).any(axis=1))
        if not len(awaited):
            return np.zeros(0, excursions.TOLD)
        columns, regime = filled[awaited][:, : one.detector.channels], one.regime.of(filled)[awaited]
        readings = Readings(awaited, moment.at_ms[awaited], columns, regime)
        self._state, verdict = one.detector.run(self._state, readings)
        never = np.full(len(awaited), NEVER, np.int64)
        self._called, told = excursions.follow(one, self._called, readings, verdict, never)
        return told


def opened(told: Rows) -> Rows:
    """The tellings with which an excursion is called."""
    return np.asarray(told[(told["revision"] == 1) & (told["closed_ms"] < 0)])


def healthy(
    deployments: Sequence[Deployment], count: int, moments: Iterable[Moment], hours_a_month: float, step_s: float = 1.0
) -> dict[str, dict[str, float]]:
    """Alerts per machine-month of each deployment and of all, with exposure and the exact 95 % upper bound."""
    watches = {one.name: Watch(one, count) for one in deployments}
    alerts, judged_s = dict.fromkeys(watches, 0), 0.0
    for moment in moments:
        judged_s += count * step_s
        for name, watch in watches.items():
            alerts[name] += len(opened(watch.step(moment)))
    hours = judged_s / 3_600
    rows = {name: rate(number, hours, hours_a_month) for name, number in alerts.items()}
    return {**rows, "all together": rate(sum(alerts.values()), hours, hours_a_month)}


def rate(alerts: int, hours: float, hours_a_month: float) -> dict[str, float]:
    """A rate with what it rests on; the bound is one-sided, exact."""
    months = hours / hours_a_month
    return {
        "machine_months": months, "hours": hours, "alerts": alerts, "alerts_per_month": alerts / months,
        "alerts_per_month_upper_95": poisson_upper(alerts, months),
    }  # fmt: skip


Change = Callable[[Floats, Floats], Floats]
"""(values, seconds since the fault began, of the machines that have it) -> values with the fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of stated size: what becomes of ``signal`` from its beginning on."""

    name: str
    signal: int
    change: Change


def injected(
    deployments: Sequence[Deployment],
    fault: Fault,
    count: int,
    moments: Iterable[Moment],
    begin_s: float,
    stop_s: float,
) -> dict[str, float]:
    """Share of machines found, median and largest delay in s; alerts before the fault's beginning are false.

    Seconds are seconds of life (moments count as one each). Alerts of any deployment count as found.
    """
    watches = [Watch(one, count) for one in deployments]
    delay = np.full(count, np.inf)
    false, second = 0, 0
    for second, moment in enumerate(moments):
        if second >= stop_s:
            break
        changed = _with(fault, moment, second - begin_s)
        for watch in watches:
            told = opened(watch.step(changed))
            if second < begin_s:
                false += len(told)
            else:
                np.minimum.at(delay, told["device"], second - begin_s)
    found = delay[np.isfinite(delay)]
    hours = count * min(begin_s, second + 1) / 3_600
    return {
        "machines": count, "found": len(found) / count,
        "median_delay_s": float(np.median(found)) if len(found) else float("nan"),
        "largest_delay_s": float(found.max()) if len(found) else float("nan"),
        "false_alarms": false, "hours_before": hours,
    }  # fmt: skip


def _with(fault: Fault, moment: Moment, since_s: float) -> Moment:
    if since_s < 0 or fault.signal not in moment.values:
        return moment
    value = moment.values[fault.signal]
    return Moment(moment.at_ms, {**moment.values, fault.signal: fault.change(value, np.full(len(value), since_s))})
