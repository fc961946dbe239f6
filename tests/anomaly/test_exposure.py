"""Detectors over many machines at once: the same findings as a shard's, rates with what they rest on."""

from __future__ import annotations

import numpy as np

from anomaly.benchmarks.exposure import Fault, Moment, Watch, healthy, injected, rate
from anomaly.excursions import TOLD
from anomaly.moments import SAMPLE
from anomaly.shard import Shard
from anomaly.types import Floats, Rows
from infra.score_fleet import CARS, TURBINE_FAULTS, TURBINE_SET, cars, power_curve, turbines

COUNT = 12


def dying(value: Floats, since_s: Floats) -> Floats:
    return np.asarray(value - np.where(np.arange(len(value)) % 2 == 0, np.minimum(0.2 * since_s, 2.6), 0.0))


ALTERNATOR = Fault("alternator", 50, dying)


def moments(seconds: int) -> list[Moment]:
    """Cars whose every second alternator dies after 100 s; trips end within, so clocks jump."""
    found = []
    for second, moment in enumerate(cars(5, COUNT, seconds)):
        values = dict(moment.values)
        values[50] = dying(values[50], np.full(COUNT, float(max(0, second - 100))))
        found.append(Moment(moment.at_ms, values))
    return found


def as_log(lived: list[Moment]) -> Rows:
    rows = [
        (device + 1, 0, signal, int(moment.at_ms[device]), 1, seq, pos, float(values[device]))
        for seq, moment in enumerate(lived, start=1)
        for device in range(COUNT)
        for pos, (signal, values) in enumerate(sorted(moment.values.items()))
    ]
    return np.array(rows, SAMPLE)


def test_watching_moments_is_what_a_shard_does() -> None:
    lived = moments(400)
    shard = Shard(CARS, 5_000)
    step = shard.run(shard.start(), as_log(lived))
    told = []
    watches = [Watch(one, COUNT) for one in CARS]
    judged_until = {device: int(lived[-1].at_ms[device]) - 5_000 for device in range(COUNT)}
    for moment in lived:
        for number, watch in enumerate(watches):
            said = watch.step(moment)
            said["deployment"] = number
            told.append(said)
    rows = np.concatenate(told)
    rows = rows[[row["at_ms"] + 1_000 <= judged_until[int(row["device"])] for row in rows]]
    rows["device"] += 1
    order = np.lexsort((rows["revision"], rows["started_ms"], rows["device"], rows["deployment"]))
    rows = rows[order]
    names = ["deployment", "device", "started_ms"]
    last = np.append((rows[names][1:] != rows[names][:-1]), True)
    found = np.sort(step.told, order=["deployment", "device", "started_ms"])
    assert len(found) >= COUNT // 2
    for name in TOLD.names or ():
        assert np.array_equal(found[name], rows[last][name], equal_nan=name in ("observed", "low", "high")), name


def test_injected_faults_are_found_and_healthy_cars_are_left_alone() -> None:
    row = injected(CARS, ALTERNATOR, COUNT, cars(6, COUNT, 400), begin_s=200, stop_s=400)
    assert row["found"] == 0.5 and row["false_alarms"] == 0
    assert 5 < row["median_delay_s"] < 60
    calm = healthy(CARS, COUNT, cars(7, COUNT, 300), 30.4)["all together"]
    assert calm["alerts"] == 0 and calm["hours"] == 1.0


def test_a_rate_says_what_it_rests_on() -> None:
    row = rate(3, 60.8, 30.4)
    assert row["machine_months"] == 2.0 and row["alerts_per_month"] == 1.5
    assert row["alerts_per_month_upper_95"] * 2 > 7.7


def test_a_turbines_fault_changes_its_signal_alone() -> None:
    lived = turbines([1, 2], 0.02)
    assert len(lived) == 72 and all(one.values[1009].shape == (2,) for one in lived)
    assert sum(1011 in one.values for one in lived) == 14
    watched = (*TURBINE_SET, power_curve(lived))
    hot = next(fault for fault in TURBINE_FAULTS if fault.signal == 1011)
    quick = Fault("seizes", 1011, lambda value, since_s: value + 2.0 * since_s)
    assert injected(watched, quick, 2, lived, 10, 72)["found"] == 1.0
    assert injected(watched, hot, 2, lived, 60, 72)["found"] == 0.0
