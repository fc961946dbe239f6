"""Healthy rows of many devices to frozen parameters: the same rows, seed and recipe give the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from anomaly.base import Detector, Readings
from anomaly.detectors.input_drift import UNSTEADY, InputDrift
from anomaly.errors import BadParameters
from anomaly.models.recipe import Recipe
from anomaly.models.rows import stretches
from anomaly.types import Floats, Ints

STRETCH_ROWS: Final = 1_800
LEAST_ROWS: Final = 600
"""Ten minutes at one row a second: fewer rows say nothing of how a machine works."""
MEMORY_ROWS: Final = (3_600.0, 7 * 86_400.0)
"""The watch over a model's inputs looks back as far as its training did, within these bounds."""
ROOM: Final = 1.2
"""The most unusual device of the training stays this far below the threshold of drift."""


def choose(readings: Readings, most_rows: int, seed: tuple[int, ...]) -> Ints:
    """Numbers of at most ``most_rows`` rows in whole stretches, drawn by ``seed``, in order of time."""
    parts = stretches(readings, STRETCH_ROWS)
    kept: list[Ints] = []
    room = most_rows
    for at in np.random.default_rng(seed).permutation(len(parts)):
        part = parts[int(at)][:room]
        room -= len(part)
        kept.append(part)
        if not room:
            break
    return np.sort(np.concatenate([np.zeros(0, np.int64), *kept]))


def fit(recipe: Recipe, by_device: Mapping[int, Floats]) -> tuple[Detector, InputDrift]:
    """The detector and the distribution of its inputs. ``by_device``: healthy rows in order of time.

    Raises BadParameters when there are too few.
    """
    devices = sorted(by_device)
    rows = np.concatenate([np.zeros((0, recipe.channels)), *(by_device[device] for device in devices)])
    if len(rows) < LEAST_ROWS:
        raise BadParameters(f"{recipe.name}: {len(rows)} healthy rows are too few; wanted at least {LEAST_ROWS}")
    detector = recipe.fit(rows)
    memory = float(np.clip(len(rows) / len(devices), *MEMORY_ROWS))
    inputs = InputDrift.of(rows, memory)
    indices = [inputs.index(by_device[device]) for device in devices if len(by_device[device]) >= LEAST_ROWS // 2]
    widest = max(indices, default=0.0)
    return detector, InputDrift.of(rows, memory, max(UNSTEADY, ROOM * widest))
