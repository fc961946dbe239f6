"""A fault changes one sensor from its moment on and nothing else; the declared detectors find it, and no health."""

from __future__ import annotations

import numpy as np
import pytest

from anomaly.deployed import DEPLOYED
from anomaly.moments import SAMPLE
from anomaly.shard import Shard
from anomaly.types import Rows
from simulators.car import Car
from simulators.errors import PlanError
from simulators.faults import FAULTS, Faulty
from simulators.machine import STEP_MS, Machine
from simulators.turbine import Turbine

START_MS = 1_790_000_000_000
SHARD = Shard(DEPLOYED, 5_000)
NAMES = {number: deployment.name for number, deployment in enumerate(DEPLOYED)}


def lived(machine: Machine, seconds: int, device: int) -> Rows:
    """What the machine's sensors say of signals that a detector looks at, in order of time."""
    looked_at = set(SHARD.signals.tolist())
    rows = []
    for at_ms in range(START_MS, START_MS + seconds * 1_000, STEP_MS):
        machine.step(at_ms)
        due = [one.signal for one in machine.channels if at_ms % one.every_ms == 0 and one.signal in looked_at]
        values = machine.measure(due) if due else []
        rows += [(device, 0, s, at_ms, 1, at_ms, 0, v) for s, v in zip(due, values, strict=True) if v is not None]
    return np.array(rows, SAMPLE)


def found(samples: Rows) -> set[tuple[int, str]]:
    return {(int(row["device"]), NAMES[int(row["deployment"])]) for row in SHARD.run(SHARD.start(), samples).told}


@pytest.mark.parametrize(
    ("fault", "name", "within_s"),
    [("bearing", "turbine-bearing", 40), ("charging", "car-charging", 45), ("coolant", "car-coolant", 480)],
)
def test_a_fault_is_found_soon_and_a_healthy_twin_is_not(fault: str, name: str, within_s: int) -> None:
    kind = Turbine if fault == "bearing" else Car
    ill = lived(Faulty(kind(3), fault), within_s, 1)
    well = lived(kind(3), within_s, 2)
    assert found(np.concatenate([ill, well])) == {(1, name)}


def test_only_the_faulty_sensor_differs() -> None:
    ill, well = lived(Faulty(Car(3), "charging"), 60, 1), lived(Car(3), 60, 1)
    differs = ill["value"] != well["value"]
    drift = FAULTS["charging"]
    assert set(ill["signal"][differs].tolist()) == {drift.signal}
    assert ill["at_ms"][differs].min() > START_MS + drift.after_s * 1_000
    assert (ill["value"] - well["value"]).min() == pytest.approx(drift.at_most)


def test_a_fault_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PlanError, match="choose one of"):
        Faulty(Car(1), "rust")
