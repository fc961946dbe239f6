"""Simulated machines for the scores: healthy vehicle-months, and faults of stated size on cars and turbines.

The one place where physics (``simulators``) meets detectors (``anomaly``): each knows arrays only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from anomaly.accumulate import Accumulator
from anomaly.benchmarks.exposure import Fault, Moment, healthy, injected
from anomaly.deployed import DEPLOYED
from anomaly.deployment import Deployment, Regime
from anomaly.detectors.residual import Residual
from anomaly.types import Floats
from contracts.finding import Severity
from simulators.herd import Herd
from simulators.turbine import PRODUCTION, Turbine

HOURS_A_MONTH = 30.4
"""A vehicle-month: an hour of driving a day. A machine that never stands has 730.5 hours."""
MACHINE_HOURS = 730.5
CARS_AT_ONCE = 2_000
LEAST_HOURS = 1.0
"""Each car drives at least this long; fewer cars are simulated where the hours are few."""
FAULTY_CARS = 500
TURBINES = 24
TURBINE_HOURS = 4.0
TOLD_MS = {1001: 1, 1002: 1, 1006: 5, 1009: 1, 1011: 5, 1012: 1, 1017: 1}
"""Signals of turbines that are looked at, and every how many seconds they are read."""

CARS = tuple(one for one in DEPLOYED if "car" in one.kinds and one.name != "vehicle-codes")
TURBINE_SET = tuple(one for one in DEPLOYED if "turbine" in one.kinds)

Progress = Callable[[str], None]


def cars(seed: int, count: int, seconds: int, progress: Progress | None = None) -> Iterator[Moment]:
    """Seconds of driving of healthy cars."""
    herd = Herd(seed, count)
    for second in range(seconds):
        herd.step()
        if progress is not None and second % 2_000 == 0:
            progress(f"fleet: {second} of {seconds} seconds of {count} cars")
        yield Moment(herd.at_ms.copy(), herd.measure())


def vehicle_months(months: float, seed: int, progress: Progress) -> dict[str, dict[str, float]]:
    """Alerts of the deployed detectors on healthy simulated cars."""
    hours = months * HOURS_A_MONTH
    count = min(CARS_AT_ONCE, int(np.ceil(hours / LEAST_HOURS)))
    seconds = int(np.ceil(hours / count * 3_600))
    return healthy(CARS, count, cars(seed, count, seconds, progress), HOURS_A_MONTH)


def _towards(per_s: float, at_most: float, value: Floats, since_s: Floats) -> Floats:
    grown = per_s * since_s
    return np.asarray(value + (np.minimum(grown, at_most) if per_s > 0 else np.maximum(grown, at_most)))


def _times(factor: float, value: Floats, since_s: Floats) -> Floats:
    return np.asarray(value * factor)


CAR_FAULTS = (
    Fault("coolant is lost: +0.05 K/s up to +40 K", 21, partial(_towards, 0.05, 40.0)),
    Fault("thermostat or fan: +12 K", 21, partial(_towards, 1.0, 12.0)),
    Fault("alternator dies: -0.2 V/s down to -2.6 V", 50, partial(_towards, -0.2, -2.6)),
    Fault("weak battery charging: -1.5 V", 50, partial(_towards, -0.2, -1.5)),
    Fault("tyre: slow puncture, -20 kPa an hour", 44, partial(_towards, -20.0 / 3_600, -150.0)),
    Fault("tyre: -1 kPa/s down to -150 kPa", 44, partial(_towards, -1.0, -150.0)),
)
TURBINE_FAULTS = (
    Fault("generator bearing: +0.02 K/s up to +70 K", 1011, partial(_towards, 0.02, 70.0)),
    Fault("gearbox oil: +0.01 K/s up to +40 K", 1006, partial(_towards, 0.01, 40.0)),
    Fault("vibration x 1.5", 1017, partial(_times, 1.5)),
    Fault("vibration x 2", 1017, partial(_times, 2.0)),
    Fault("power curve: 10 % less", 1002, partial(_times, 0.9)),
    Fault("power curve: 20 % less", 1002, partial(_times, 0.8)),
)


def car_faults(seed: int, count: int = FAULTY_CARS) -> dict[str, dict[str, float]]:
    """Each fault on cars of its own; it begins after 30 minutes of driving and is watched for three hours."""
    rows = {}
    for number, fault in enumerate(CAR_FAULTS):
        moments = cars(seed + 1 + number, count, 12_600)
        rows[fault.name] = injected(CARS, fault, count, moments, begin_s=1_800, stop_s=12_600)
    return rows


def turbines(seeds: Sequence[int], hours: float) -> list[Moment]:
    """Healthy turbines side by side, each in its own weather."""
    lives = [Turbine(seed, weather=seed) for seed in seeds]
    moments = []
    for second in range(1, int(hours * 3_600) + 1):
        for tenth in range(10):
            for life in lives:
                life.step(1_000 * second - 900 + 100 * tenth)
        due = [signal for signal, every in TOLD_MS.items() if second % every == 0]
        told = np.array([life.measure(due) for life in lives], dtype=np.float64)
        at_ms = np.full(len(lives), 1_000 * second, np.int64)
        moments.append(Moment(at_ms, {signal: told[:, column] for column, signal in enumerate(due)}))
    return moments


def power_curve(training: Sequence[Moment]) -> Deployment:
    """Power explained by wind, learnt on healthy turbines; ten minutes of excess call."""
    rows = np.concatenate([
        np.stack([one.values[1002], one.values[1012]], axis=1)[one.values[1001] == PRODUCTION] for one in training
    ])  # fmt: skip
    return Deployment(
        "turbine-power", Residual.trained(rows, alpha=0.005, margin=1.2), (1002, 1012, 1001), ("turbine",), "power",
        "Look for ice, a wrong pitch or a curtailment.", Severity.NOTE, Accumulator(call_at=600, ceiling=1_200),
        regime=Regime(2, (float(PRODUCTION),)),
    )  # fmt: skip


def turbine_tables(
    seed: int, count: int = TURBINES, hours: float = TURBINE_HOURS
) -> dict[str, dict[str, dict[str, float]]]:
    """Healthy exposure and faults; every second turbine trains the power curve, the others are judged."""
    training = turbines([seed + number for number in range(0, count, 2)], hours)
    judged = turbines([seed + number for number in range(1, count, 2)], hours)
    machines, begin_s = len(judged[0].at_ms), hours * 1_800
    watched = (*TURBINE_SET, power_curve(training))
    return {
        "turbines, healthy": healthy(watched, machines, judged, MACHINE_HOURS),
        "turbines, faults": {
            fault.name: injected(watched, fault, machines, judged, begin_s, hours * 3_600) for fault in TURBINE_FAULTS
        },
    }  # fmt: skip
