"""What can be trained: the menu of recipes. A new one is one entry in ``RECIPES``.

A recipe names one class of asset, the signals, how rows become frozen parameters, when a person is called, and the
faults that a model is tried with. Everything that decides an answer is copied into the model's file: changing a recipe
changes models that are trained later, never one that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from anomaly.accumulate import Accumulator
from anomaly.base import Detector
from anomaly.deployment import FOREVER, Deployment, Regime
from anomaly.detectors.mahalanobis import Mahalanobis
from anomaly.detectors.residual import Residual
from anomaly.detectors.subspace import Subspace
from anomaly.errors import BadParameters
from anomaly.types import Floats
from contracts.finding import Severity


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault put into healthy readings from some moment on: ``column`` is scaled, and gains ``adds`` within
    ``within_s`` (a ramp; 0: at once)."""

    name: str
    column: int
    scaled: float = 1.0
    adds: float = 0.0
    within_s: float = 0.0

    def into(self, values: Floats, since_s: Floats) -> Floats:
        """``since_s``: seconds since the fault began, negative before it."""
        grown = np.clip(since_s / self.within_s, 0.0, 1.0) if self.within_s else np.ones(len(since_s))
        hit = since_s >= 0
        changed = values.copy()
        changed[hit, self.column] = values[hit, self.column] * self.scaled + self.adds * grown[hit]
        return changed


@dataclass(frozen=True, slots=True)
class Call:
    """When and how a person is called; the fields are those of ``anomaly.deployment.Deployment``."""

    cause: str
    advice: str
    severity: Severity
    accumulator: Accumulator
    awaits: tuple[int, ...] = (0,)
    hold_ms: int = 0
    worse: float = 1.5
    regime: Regime = field(default_factory=Regime)

    def deployment(
        self, name: str, kind: str, detector: Detector, signals: tuple[int, ...], model: str = "", since_ms: int = 0,
        until_ms: int = FOREVER,
    ) -> Deployment:  # fmt: skip
        """Raises BadParameters when the parts do not fit together."""
        return Deployment(
            name, detector, signals, (kind,), self.cause, self.advice, self.severity, self.accumulator, self.awaits,
            self.hold_ms, self.worse, self.regime, model, since_ms, until_ms,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """``signals`` are catalogue numbers in the order of columns; the first ``channels`` are judged, the rest names the
    regime. ``fit`` takes healthy rows (rows x channels) and gives frozen parameters; it raises BadParameters."""

    name: str
    kind: str
    signals: tuple[int, ...]
    channels: int
    fit: Callable[[Floats], Detector]
    call: Call
    faults: tuple[Injected, ...]


_COOLANT = Recipe(
    name="car-coolant-model",
    kind="car",
    signals=(21, 24, 1, 52),  # coolant; mass air flow (heat in), speed and air temperature (heat out)
    channels=4,
    fit=partial(Residual.trained, hinges=6, alpha=0.02, margin=1.5),
    call=Call(
        cause="coolant",
        advice="Warmer than this load explains: check coolant level, thermostat, fan and radiator before it boils.",
        severity=Severity.WARNING,
        accumulator=Accumulator(call_at=6, ceiling=24),
        hold_ms=6_000,
        regime=Regime(0, (80.0,)),  # below it the thermostat is shut and the engine warms up
    ),
    faults=(Injected("coolant +18 K in 5 min", 0, adds=18.0, within_s=300.0),),
)
_POWER = Recipe(
    name="turbine-power",
    kind="turbine",
    signals=(1002, 1012, 1009),  # power by wind speed; the generator's speed names the regime
    channels=2,
    fit=partial(Residual.trained, hinges=10, alpha=0.01, margin=1.3),
    call=Call(
        cause="power curve",
        advice="Less power than this wind gives: check pitch angles, yaw error, icing and the anemometer.",
        severity=Severity.NOTE,
        accumulator=Accumulator(call_at=60, ceiling=300),
        hold_ms=2_000,
        regime=Regime(2, (850.0,)),
    ),
    faults=(Injected("power 40 % low", 0, scaled=0.6),),
)
_HEAT = Recipe(
    name="turbine-heat",
    kind="turbine",
    signals=(1006, 1007, 1010, 1011, 1016, 1009),  # gearbox oil, shaft, stator, bearing, nacelle
    channels=5,
    fit=partial(Subspace.trained, alpha=0.1, share=0.99, margin=1.4),
    call=Call(
        cause="heat",
        advice="One of the temperatures no longer follows the others: check its bearing, oil, cooler and fan.",
        severity=Severity.WARNING,
        accumulator=Accumulator(call_at=12, ceiling=60),
        hold_ms=6_000,
        regime=Regime(5, (850.0,)),
    ),
    faults=(Injected("generator bearing +30 K in 10 min", 3, adds=30.0, within_s=600.0),),
)
_TRAIN = Recipe(
    name="turbine-drive-train",
    kind="turbine",
    signals=(1008, 1017, 1009, 1002),  # vibration of gearbox and generator; speed and power
    channels=4,
    fit=partial(Mahalanobis.trained, alpha=0.02, shrink=0.1, margin=1.4),
    call=Call(
        cause="generator bearing",
        advice="Vibration no longer follows speed and power: have bearings, gear teeth and alignment looked at.",
        severity=Severity.WARNING,
        accumulator=Accumulator(call_at=60, ceiling=300),
        hold_ms=2_000,
        regime=Regime(2, (850.0,)),
    ),
    faults=(
        Injected("generator vibration +70 %", 1, scaled=1.7),
        Injected("gearbox vibration +70 %", 0, scaled=1.7),
    ),
)

RECIPES: Final[Mapping[str, Recipe]] = {one.name: one for one in (_COOLANT, _POWER, _HEAT, _TRAIN)}
SIGNALS: Final = tuple(sorted({signal for one in RECIPES.values() for signal in one.signals}))
"""Signals of any recipe: the stream takes them in whether or not a model looks at them (``anomaly.shard``)."""


def recipe_named(name: str) -> Recipe:
    """Raises BadParameters for a name that is not on the menu."""
    if name not in RECIPES:
        raise BadParameters(f"there is no recipe named {name!r}; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]
