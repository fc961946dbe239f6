"""C-MAPSS turbofans: RMSE and PHM score, raw and capped at 125 cycles, both printed; coverage of the intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anomaly.life.features import Cycles, Standard, features
from anomaly.life.model import LifeSettings, phm_score, train
from anomaly.types import Floats, Ints

CAP = 125.0


@dataclass(frozen=True, slots=True)
class Turbofans:
    """One subset: runs to failure, runs cut short, and the true remaining life of the latter in cycles."""

    name: str
    train: Cycles
    test: Cycles
    truth: Floats


def cycles(table: Floats) -> Cycles:
    """From the published 26 columns."""
    return Cycles(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:5], table[:, 5:26])


def remaining(part: Cycles) -> Floats:
    """Cycles until the last row of each unit of a run to failure."""
    last = {int(unit): int(part.cycle[part.unit == unit].max()) for unit in np.unique(part.unit)}
    return np.array([last[int(unit)] - cycle for unit, cycle in zip(part.unit, part.cycle, strict=True)], dtype=float)


def last_rows(part: Cycles) -> Ints:
    """The row of each unit's last cycle, in order of appearance."""
    return np.flatnonzero(np.append(part.unit[1:] != part.unit[:-1], True))


def row(subset: Turbofans, seed: int, settings: LifeSettings | None = None) -> dict[str, float]:
    """Figures of one seed. Units are judged at their last cycle, as the benchmark does."""
    chosen = settings or LifeSettings()
    standard = Standard.learnt(subset.train)
    known = features(subset.train, standard)
    model = train(known, subset.train.unit, remaining(subset.train), seed, chosen)
    ends = last_rows(subset.test)
    asked = {name: block[ends] for name, block in features(subset.test, standard).items()}
    life, low, high = model.predict(asked)
    capped = np.minimum(subset.truth, CAP)
    return {
        "rmse_capped": rmse(life - capped), "phm_capped": phm_score(life - capped),
        "rmse_raw": rmse(life - subset.truth), "phm_raw": phm_score(life - subset.truth),
        "coverage": float(((low <= capped) & (capped <= high)).mean()), "nominal": chosen.coverage,
        "mean_width": float((high - low).mean()),
    }  # fmt: skip


def mean_row(subset: Turbofans) -> dict[str, float]:
    """The row that knows nothing: always the mean capped training life."""
    guess = float(np.minimum(remaining(subset.train), CAP).mean())
    capped = np.minimum(subset.truth, CAP)
    return {
        "rmse_capped": rmse(guess - capped), "phm_capped": phm_score(guess - capped),
        "rmse_raw": rmse(guess - subset.truth), "phm_raw": phm_score(guess - subset.truth),
    }  # fmt: skip


def rmse(error: Floats) -> float:
    return float(np.sqrt((error**2).mean()))
