"""C-MAPSS turbofans: RMSE and PHM score, raw and capped at 125 cycles, both printed; coverage of the intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anomaly.life.features import Cycles, Standard, features
from anomaly.life.model import LifeModel, LifeSettings, phm_score, train
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


@dataclass(frozen=True, slots=True)
class Prepared:
    """Features of a subset, made once for all seeds."""

    subset: Turbofans
    known: dict[str, Floats]
    life: Floats
    asked: dict[str, Floats]

    @classmethod
    def of(cls, subset: Turbofans) -> Prepared:
        standard = Standard.learnt(subset.train)
        known, asked = features(subset.train, standard), features(subset.test, standard)
        return cls(subset, known, remaining(subset.train), asked)


def model_of(data: Prepared, seed: int, settings: LifeSettings) -> LifeModel:
    return train(data.known, data.subset.train.unit, data.life, seed, settings)


def row(data: Prepared, model: LifeModel) -> dict[str, float]:
    """Figures of one seed. Units are judged at their last cycle, as the benchmark does."""
    subset = data.subset
    ends, truth = last_rows(subset.test), subset.truth
    life, low, high = (values[ends] for values in model.predict(data.asked, subset.test.unit))
    far = model.uncut(life)
    capped = np.minimum(truth, CAP)
    chosen = model.settings
    soon, called = truth <= chosen.horizon, life <= model.call_at
    cost = chosen.cost_false * (called & ~soon).sum() + chosen.cost_missed * (~called & soon).sum()
    return {
        "rmse_capped": rmse(life - capped), "phm_capped": phm_score(life - capped),
        "rmse_raw": rmse(far - truth), "phm_raw": phm_score(far - truth), "rmse_left_out": model.left_out_rmse,
        "coverage": float(((low <= capped) & (capped <= high)).mean()), "nominal": chosen.coverage,
        "mean_width": float((high - low).mean()), "call_at": model.call_at, "cost_a_unit": float(cost) / len(truth),
        "drift": float(model.reference.index(data.asked["short"]).max()),
    }  # fmt: skip


def ridge_row(data: Prepared) -> dict[str, float]:
    """Linear regression of the capped life on smoothed sensors and age."""
    columns = ("short", "middle", "cycle")
    known = np.hstack([data.known[name] for name in columns])
    mean, spread = known.mean(axis=0), known.std(axis=0) + 1e-9
    asked = np.hstack([data.asked[name][last_rows(data.subset.test)] for name in columns])
    left, target = (known - mean) / spread, np.minimum(data.life, CAP)
    weights = np.linalg.solve(left.T @ left + np.eye(left.shape[1]), left.T @ (target - target.mean()))
    return _figures((asked - mean) / spread @ weights + target.mean(), data.subset.truth)


def _figures(guess: Floats, truth: Floats) -> dict[str, float]:
    capped = np.minimum(truth, CAP)
    return {
        "rmse_capped": rmse(guess - capped), "phm_capped": phm_score(guess - capped),
        "rmse_raw": rmse(guess - truth), "phm_raw": phm_score(guess - truth),
    }  # fmt: skip


def mean_row(subset: Turbofans) -> dict[str, float]:
    """The row that knows nothing: always the mean capped training life."""
    guess = np.full(len(subset.truth), np.minimum(remaining(subset.train), CAP).mean())
    return _figures(guess, subset.truth)


def call_rows(subset: Turbofans, settings: LifeSettings) -> dict[str, dict[str, float]]:
    """What calling in nobody, or everybody, costs a unit."""
    soon = float((subset.truth <= settings.horizon).mean())
    return {
        "call nobody": {"cost_a_unit": settings.cost_missed * soon},
        "call everybody": {"cost_a_unit": settings.cost_false * (1.0 - soon)},
    }


def rmse(error: Floats) -> float:
    return float(np.sqrt((error**2).mean()))
