"""A small fleet of cars whose coolant follows load, as readings; a model made of it without Spark."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from anomaly.models import fitting
from anomaly.models.file import Model, Training
from anomaly.models.recipe import Recipe, recipe_named
from anomaly.models.rows import Shape, healthy, rows_of, within
from anomaly.models.trial import joined, try_out
from anomaly.moments import SAMPLE
from anomaly.types import Floats, Rows

T0 = 1_790_000_000_000
WAIT_MS = 5_000
COOLANT, AIR, SPEED, AMBIENT = 21, 24, 1, 52
RECIPE: Recipe = recipe_named("car-coolant-model")
SHAPE = Shape(RECIPE.signals, RECIPE.channels, RECIPE.call.awaits, RECIPE.call.hold_ms, RECIPE.call.regime)


def driven(car: int, first_s: int, seconds: int, hot_from_s: int = 10**9, worn: float = 0.0) -> dict[int, Floats]:
    """Values by signal, one a second (coolant and ambient are read every fifth); ``worn`` degrees too warm always, and
    20 more within 5 minutes from ``hot_from_s`` on."""
    rng = np.random.default_rng((car, first_s))
    at = np.arange(first_s, first_s + seconds, dtype=np.float64)
    air = 12 + 8 * np.sin(at / 48 + car) + rng.normal(0, 0.3, seconds)
    speed = 60 + 30 * np.sin(at / 67 + car) + rng.normal(0, 0.5, seconds)
    ambient = 15 + 2 * np.sin(at / 300)
    hot = 20.0 * np.clip((at - hot_from_s) / 300, 0, 1)
    coolant = 84 + 0.25 * air - 0.03 * speed + 0.1 * ambient + rng.normal(0, 0.3, seconds) + hot + worn
    return {COOLANT: coolant, AIR: air, SPEED: speed, AMBIENT: ambient}


def samples(device: int, told: dict[int, Floats], first_s: int, packet_s: int = 60) -> Rows:
    """As the stream sees them: packets of a minute."""
    rows = []
    for signal, values in told.items():
        step = 5 if signal in (COOLANT, AMBIENT) else 1
        for n in range(0, len(values), step):
            rows.append((device, 0, signal, T0 + 1_000 * (first_s + n), 1, n // packet_s + 1, n, round(values[n], 1)))
    made = np.array(rows, SAMPLE)
    ordered: Rows = made[np.lexsort((made["signal"], made["at_ms"], made["seq"]))]
    return ordered


NOTHING = np.zeros((0, 2), np.int64)


@cache
def trained(seconds: int = 5_400, seed: int = 1, loud: bool = False) -> Model:
    """Three cars; ``loud``: a threshold so low that healthy cars are called."""
    split_ms = T0 + 700 * seconds
    fleet = {car: rows_of(SHAPE, samples(car, driven(car, 0, seconds), 0), WAIT_MS) for car in (1, 2, 3)}
    rows = {}
    for car, readings in fleet.items():
        early = healthy(within(readings, T0, split_ms, NOTHING))
        rows[car] = early.values[fitting.choose(early, 900, (seed, car))]
    detector, inputs = fitting.fit(RECIPE, rows)
    if loud:
        detector = replace(detector, threshold=0.05)  # type: ignore[type-var]
    deployment = RECIPE.call.deployment(RECIPE.name, RECIPE.kind, detector, RECIPE.signals)
    late = [within(readings, split_ms, 2**42, NOTHING) for readings in fleet.values()]
    score = joined(RECIPE.faults, [try_out(deployment, RECIPE.faults, one) for one in late])
    training = Training(
        T0,
        split_ms,
        T0 + 1_000 * seconds,
        3,
        270,
        30_000,
        sum(map(len, rows.values())),
        seed,
        WAIT_MS,
        "code",
        "0" * 64,
    )
    return Model(
        RECIPE.name, RECIPE.kind, RECIPE.signals, detector, RECIPE.call, inputs, RECIPE.faults, training, score
    )  # fmt: skip
