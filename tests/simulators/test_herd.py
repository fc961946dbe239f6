"""Many cars at once: the same engine as one car, and lives that stay within what healthy cars do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import engine, herd
from simulators.herd import Herd


@given(
    speed=st.floats(0.0, 45.0), acceleration=st.floats(-6.0, 3.0), gear=st.integers(0, 6), climb=st.floats(-0.1, 0.1),
    load=st.floats(0.0, 1.0), coolant_c=st.floats(-20.0, 120.0),
)  # fmt: skip
def test_its_engine_is_the_engine(
    speed: float, acceleration: float, gear: int, climb: float, load: float, coolant_c: float
) -> None:
    fast, gears, hill = np.array([speed]), np.array([gear]), np.array([climb])
    rpm, told, fuel = herd.run(fast, np.array([acceleration]), gears, hill)
    one = engine.run(speed, acceleration, gear, climb)
    assert (rpm[0], told[0], fuel[0]) == pytest.approx((one.rpm, one.load, one.fuel_g_per_s))
    assert herd.next_gear(gears, fast, np.array([load]))[0] == engine.next_gear(gear, speed, load)
    assert herd.most_acceleration(fast, gears, hill)[0] == pytest.approx(engine.most_acceleration(speed, gear, climb))
    warmth = herd.coolant_watts(np.array([coolant_c]), np.array([10.0]), fast, fuel)
    assert warmth[0] == pytest.approx(engine.coolant_watts(coolant_c, 10.0, speed, one.fuel_g_per_s))


def test_lives_are_healthy_and_told_by_their_seed() -> None:
    cars, again = Herd(3, 200), Herd(3, 200)
    told: dict[int, list[np.ndarray]] = {}
    for _ in range(900):
        cars.step()
        again.step()
        for signal, values in cars.measure().items():
            told.setdefault(signal, []).append(values)
        again.measure()
    assert (cars.at_ms == again.at_ms).all() and (cars.speed == again.speed).all()
    assert {signal: len(rows) for signal, rows in told.items()} == {
        signal: 900 // every for signal, every in herd.EVERY_S.items()
    }
    assert max(rows.max() for rows in told[21]) < 105 and min(rows.min() for rows in told[50]) > 12.5
    assert min(rows.min() for rows in told[44]) > 200 and max(rows.max() for rows in told[44]) < 320
    assert 5 < cars.speed.mean() < 25 and np.ptp(cars.at_ms) > 3_600_000
