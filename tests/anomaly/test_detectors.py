"""What each detector is for: it finds its fault, and a healthy fleet stays quiet."""

from __future__ import annotations

import numpy as np
import pytest

from anomaly.base import Detector, Readings
from anomaly.detectors.ewma_cusum import EwmaCusum
from anomaly.detectors.faults import Faults
from anomaly.detectors.limits import Limits
from anomaly.detectors.mahalanobis import Mahalanobis
from anomaly.detectors.maintenance import Maintenance
from anomaly.detectors.own_past import OwnPast
from anomaly.detectors.peers import Peers
from anomaly.detectors.residual import Residual
from anomaly.detectors.silence import Silence
from anomaly.detectors.subspace import Subspace
from anomaly.detectors.vibration_zones import VibrationZones
from anomaly.errors import BadParameters
from anomaly.types import Bools, Floats


def alarms(detector: Detector, values: Floats, step_ms: int = 1_000, regime: int = 0) -> Bools:
    """Alarms of one device, a reading every ``step_ms``."""
    rows = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    nothing = np.zeros(len(rows), dtype=np.int64)
    readings = Readings(nothing, step_ms * np.arange(len(rows)), rows, nothing + regime)
    return detector.run(detector.start(1), readings)[1].alarm


def test_limits_find_range_and_rate() -> None:
    found = alarms(Limits(low=(-40.0,), high=(115.0,), rate=(5.0,)), np.array([90.0, 91, 116, 100, 99, 98]))
    assert found.tolist() == [False, False, True, True, False, False]


def test_silence_finds_a_flat_line_and_a_dropout() -> None:
    detector = Silence(flat_s=(5.0,), missing_s=(3.0,))
    flat = alarms(detector, np.array([1.0, 2.0] + [3.0] * 8))
    assert np.flatnonzero(flat).tolist() == [8, 9]
    gone = alarms(detector, np.array([1.0, 2.0] + [np.nan] * 5 + [4.0]))
    assert np.flatnonzero(gone).tolist() == [5, 6]


def test_a_parked_car_is_not_a_flat_line() -> None:
    assert not alarms(Silence(flat_s=(5.0,), missing_s=(3.0,)), np.zeros(50), regime=1).any()


def test_faults_tell_each_rise_once() -> None:
    found = alarms(Faults(), np.array([[0, 0], [1, 1], [1, 1], [2, 1], [0, 0], [1, 0]]))
    assert found.tolist() == [False, True, False, True, False, True]


def test_zones_need_persistence_and_a_covered_machine() -> None:
    found = alarms(VibrationZones("group 2", "rigid"), np.array([1.0, 3.0, 1.0, 3.0, 3.0, 3.0, 1.0]))
    assert np.flatnonzero(found).tolist() == [5]
    with pytest.raises(BadParameters):
        VibrationZones("wind turbine gearbox", "flexible")


def test_maintenance_is_told_once_and_again_after_a_reset() -> None:
    counter = np.concatenate([np.arange(0, 120, 5.0), np.arange(0, 120, 5.0)])
    found = np.flatnonzero(alarms(Maintenance(interval=(100.0,)), counter))
    assert found.tolist() == [20, 44]


def test_cusum_finds_a_small_shift_and_ends_after_it() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(90.0, 1.0, size=(3_000, 1))
    values[2_000:2_200] += 2.0
    found = np.flatnonzero(alarms(EwmaCusum(), values))
    assert len(found) and 2_000 <= found[0] < 2_060
    assert found[-1] < 2_300


def test_cusum_is_quiet_on_a_healthy_fleet() -> None:
    rng = np.random.default_rng(4)
    fleet = Readings(
        np.tile(np.arange(200), 1_000), np.repeat(np.arange(1_000), 200),
        rng.normal(size=(200_000, 1)), np.zeros(200_000, dtype=np.int64),
    )  # fmt: skip
    detector = EwmaCusum()
    _, verdict = detector.run(detector.start(200), fleet)
    assert verdict.alarm.sum() <= 2


def test_own_past_finds_the_hour_that_is_not_like_itself() -> None:
    rng = np.random.default_rng(5)
    hours = np.arange(24 * 60)
    values = 50 + 20 * np.sin(hours / 24 * 2 * np.pi) + rng.normal(0, 1, len(hours))
    odd = 24 * 50 + 6
    values[odd] = 50 - 20
    found = alarms(OwnPast(threshold=2.5), values, step_ms=3_600_000)
    assert found[odd] and found[24 * 20 : odd].sum() <= 10


@pytest.mark.parametrize(("kind", "shift"), [(Mahalanobis, 3.0), (Subspace, 1.0)])
def test_several_signals_find_a_fault(kind: type[Mahalanobis] | type[Subspace], shift: float) -> None:
    rng = np.random.default_rng(6)
    load = rng.normal(size=(3_000, 1))
    values = np.hstack([load, 2 * load, -load]) + rng.normal(0, 0.1, (3_000, 3))
    values[2_000:, 1] += shift
    found = alarms(kind.trained(values[:1_000]), values)
    assert found[2_100:].mean() > 0.95 and found[:2_000].mean() < 0.01


def test_residual_finds_lost_power_and_knows_its_limits() -> None:
    rng = np.random.default_rng(7)
    wind = rng.uniform(3, 15, 3_000)
    power = np.clip(2 * wind**3, 0, 2000) + rng.normal(0, 20, 3_000)
    detector = Residual.trained(np.stack([power, wind], axis=1)[:1_500])
    lost = power.copy()
    lost[2_500:] *= 0.9
    found = alarms(detector, np.stack([lost, wind], axis=1))
    assert found[2_600:].mean() > 0.9 and not found[1_500:2_500].any()
    storm = Readings(np.zeros(1, int), np.zeros(1, int), np.array([[2000.0, 30.0]]), np.zeros(1, int))
    assert not detector.score(detector.start(1), storm).known.any()


def test_peers_cancel_the_weather_and_name_the_odd_one() -> None:
    rng = np.random.default_rng(8)
    moments, units = 300, 12
    weather = np.cumsum(rng.normal(0, 3, moments))[:, None]
    values = weather + rng.normal(0, 0.5, (moments, units))
    values[150:, 4] += 4.0
    readings = Readings(
        np.tile(np.arange(units), moments), np.repeat(np.arange(moments), units),
        values.reshape(-1, 1), np.zeros(moments * units, dtype=np.int64),
    )  # fmt: skip
    detector = Peers(floor=(0.1,))
    _, verdict = detector.run(detector.start(units), readings)
    assert set(readings.device[verdict.alarm].tolist()) == {4}


def test_too_few_peers_are_no_consensus() -> None:
    detector = Peers(floor=(0.1,))
    few = Readings(np.arange(3), np.zeros(3, int), np.array([[1.0], [1.0], [99.0]]), np.zeros(3, int))
    assert not detector.score(detector.start(3), few).known.any()
