"""Real drives: no alert on healthy ones, and how soon injected faults are found; the rate with its exposure.

Every second drive by name trains, the others are judged. Detectors: limits (layer a) and the air flow explained by
engine speed, manifold pressure and intake temperature (layer c); an alert is what the accumulator opens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from anomaly.accumulate import Accumulator
from anomaly.base import Detector, Readings
from anomaly.detectors.limits import Limits
from anomaly.detectors.residual import Residual
from anomaly.metrics import poisson_upper
from anomaly.types import Bools, Floats, Ints

COLUMNS = (
    "Engine Coolant Temperature",
    "Intake Manifold Absolute Pressure",
    "Engine RPM",
    "Intake Air Temperature",
    "Air Flow Rate from Mass Flow Sensor",
)
"""Needed columns, in Celsius, kPa, rpm, Celsius and g/s."""
KELVIN = 273.15
RUNNING_RPM = 500.0
CALL_AFTER_S = 30
HOURS_A_MONTH = 730.5
LIMITS = Limits(
    low=(-40.0, 10.0, 0.0, -40.0, 0.0),
    high=(115.0, 300.0, 7_000.0, 215.0, 300.0),
    rate=(5.0, np.inf, np.inf, np.inf, np.inf),
)
"""Coolant over 115 Celsius boils at the usual cap pressure; the others are what an engine of this kind can reach, and
for intake air the whole OBD range, since standing in a jam heats it within seconds."""
SMOOTH = 0.003
MARGIN = 1.2
LEAST = 0.1
HEATING_C_PER_S = 0.2


@dataclass(frozen=True, slots=True)
class Drive:
    """One drive at 1 Hz: the COLUMNS, NaN before a signal's first value."""

    name: str
    at_ms: Ints
    values: Floats


def table(drives: Sequence[Drive]) -> dict[str, dict[str, float]]:
    """Healthy alerts with exposure, then each injected fault: share found and median delay in seconds."""
    ordered = sorted(drives, key=lambda drive: drive.name)
    training, judged = ordered[::2], ordered[1::2]
    flow = flow_detector(training)
    hours = sum(len(drive.values) for drive in judged) / 3_600.0
    alerts = sum(len(_alerts(flow, drive)) for drive in judged)
    upper = poisson_upper(alerts, hours) * HOURS_A_MONTH
    rows = {"healthy": {"drives": len(judged), "hours": hours, "alerts": alerts, "alerts_per_month_upper_95": upper}}
    for fault, inject in INJECTED.items():
        found = [_delay_s(flow, drive, inject(drive.values)) for drive in judged]
        seen = [delay for delay in found if np.isfinite(delay)]
        rows[fault] = {"drives": len(found), "found": len(seen) / len(found)}
        rows[fault]["median_delay_s"] = float(np.median(seen)) if seen else float("nan")
    return rows


def flow_detector(training: Sequence[Drive]) -> Residual:
    """Air flow explained, learnt on healthy drives."""
    return Residual.trained(np.concatenate([_flow(drive.values) for drive in training]), alpha=SMOOTH, margin=MARGIN)


def explained(values: Floats) -> Floats:
    """Columns of ``flow_detector`` for a whole drive; NaN while the engine stands."""
    columns = np.full((len(values), 3), np.nan)
    columns[_running(values)] = _flow(values)
    return columns


def _flow(values: Floats) -> Floats:
    """Air flow and what explains it, as logarithms (a meter errs by a share), while the engine runs."""
    charge = values[:, 2] * values[:, 1] / (values[:, 3] + KELVIN)
    logs = np.log(np.maximum(np.stack([values[:, 4], charge, values[:, 2]], axis=1), LEAST))
    return np.asarray(logs[_running(values)])


def _running(values: Floats) -> Bools:
    return np.asarray(np.isfinite(values).all(axis=1) & (values[:, 2] > RUNNING_RPM))


def _alerts(flow: Residual, drive: Drive) -> list[int]:
    """Seconds into the drive at which the accumulator opens an alert."""
    opened = [*_opened(LIMITS, drive.values, drive.at_ms), *_opened(flow, explained(drive.values), drive.at_ms)]
    return sorted(opened)


def _opened(detector: Detector, values: Floats, at_ms: Ints) -> list[int]:
    nothing = np.zeros(len(values), dtype=np.int64)
    _, verdict = detector.run(detector.start(1), Readings(nothing, at_ms, values, nothing))
    accumulator = Accumulator(call_at=CALL_AFTER_S, close_at=0, ceiling=2 * CALL_AFTER_S)
    state, found = accumulator.start(1), []
    for row in range(len(values)):
        here = np.array([row])
        state, change = accumulator.step(state, nothing[:1], at_ms[here], verdict.take(here))
        if change.opened[0]:
            found.append(row)
    return found


def _delay_s(flow: Residual, drive: Drive, values: Floats) -> float:
    """Seconds from injection (the middle of the drive) to the first alert after it; inf when there is none."""
    begin = len(values) // 2
    after = [second for second in _alerts(flow, Drive(drive.name, drive.at_ms, values)) if second >= begin]
    return float(after[0] - begin) if after else float("inf")


def _less_flow(kept: float, values: Floats) -> Floats:
    """A leaking or dirty air mass meter: only this share of the flow is told from the middle on."""
    changed = values.copy()
    changed[len(values) // 2 :, 4] *= kept
    return changed


def _overheating(values: Floats) -> Floats:
    """Lost coolant: 0.2 degrees a second from the middle on, at most 130."""
    changed = values.copy()
    half = changed[len(values) // 2 :, 0]
    changed[len(values) // 2 :, 0] = np.minimum(half + HEATING_C_PER_S * np.arange(len(half)), np.maximum(half, 130.0))
    return changed


INJECTED: Mapping[str, Callable[[Floats], Floats]] = {
    "air flow 25 % low": partial(_less_flow, 0.75),
    "air flow 40 % low": partial(_less_flow, 0.6),
    "coolant +0.2 degrees/s": _overheating,
}
