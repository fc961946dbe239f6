"""Boosted trees from features to remaining life, an interval that covers as often as it says, a cost threshold.

The point estimate is the mean of small gradient-boosted ensembles. The interval is split conformal (Vovk; Romano
and others 2019): half-widths are quantiles of the absolute error on whole units that the trees never saw, one for
each band of the prediction, so that it is narrow near the end of life and wide far from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from anomaly.errors import BadParameters
from anomaly.types import Floats, Ints

BANDS = (0.0, 30.0, 60.0, 90.0, 115.0)
"""Lower ends, in cycles of predicted life, of the bands that have their own interval width."""
FOLDS = 3


@dataclass(frozen=True, slots=True)
class LifeSettings:
    """Ranked by cross-validation on training units, the last step on FD001 only; lives are in cycles."""

    blocks: tuple[tuple[str, ...], ...] = (
        ("short", "middle", "trend", "middle_off", "short_off", "restless", "cycle"),
        ("short", "middle", "trend", "middle_shrunk", "short_shrunk", "restless", "cycle"),
    )
    cap: float = 125.0
    far: float = 145.0
    far_weight: float = 0.3
    trees: int = 400
    learning_rate: float = 0.04
    leaves: int = 8
    leaf_rows: int = 100
    l2: float = 1.0
    share_of_columns: float = 0.3
    coverage: float = 0.9


@dataclass(frozen=True)
class LifeModel:
    """Fitted trees per block of features, and the conformal half-widths per band."""

    settings: LifeSettings
    trees: tuple[HistGradientBoostingRegressor, ...]
    half_widths: tuple[float, ...]

    def predict(self, blocks: Mapping[str, Floats]) -> tuple[Floats, Floats, Floats]:
        """Remaining life, lower and upper end of the interval, in cycles, each within 0 .. cap."""
        life = _predict(self.trees, self.settings, blocks)
        band = np.searchsorted(BANDS, life, side="right") - 1
        half = np.asarray(self.half_widths)[np.maximum(band, 0)]
        cap = self.settings.cap
        return life, np.clip(life - half, 0.0, cap), np.clip(life + half, 0.0, cap)


def train(blocks: Mapping[str, Floats], unit: Ints, life: Floats, seed: int, settings: LifeSettings) -> LifeModel:
    """Fit on all units; widths from predictions of units left out, in FOLDS folds. Raises BadParameters."""
    units = np.unique(unit)
    if len(units) < 2 * FOLDS:
        raise BadParameters(f"{len(units)} units are too few to learn remaining life; give at least {2 * FOLDS}")
    shuffled = np.random.default_rng(seed).permutation(units)
    out_of_fold = np.zeros(len(life))
    for fold in range(FOLDS):
        left_out = np.isin(unit, shuffled[fold::FOLDS])
        part = {name: block[~left_out] for name, block in blocks.items()}
        rest = {name: block[left_out] for name, block in blocks.items()}
        out_of_fold[left_out] = _predict(_fit(part, life[~left_out], seed, settings), settings, rest)
    widths = _half_widths(out_of_fold, np.minimum(life, settings.cap), unit, life < settings.far, settings.coverage)
    return LifeModel(settings, _fit(blocks, life, seed, settings), widths)


def _fit(
    blocks: Mapping[str, Floats], life: Floats, seed: int, settings: LifeSettings
) -> tuple[HistGradientBoostingRegressor, ...]:
    weight = np.where(life > settings.far, settings.far_weight, 1.0)
    target = np.minimum(life, settings.cap)
    fitted = []
    for number, names in enumerate(settings.blocks):
        trees = HistGradientBoostingRegressor(
            max_iter=settings.trees, learning_rate=settings.learning_rate, max_leaf_nodes=settings.leaves,
            min_samples_leaf=settings.leaf_rows, l2_regularization=settings.l2, early_stopping=False,
            max_features=settings.share_of_columns, random_state=seed * 101 + number,
        )  # fmt: skip
        fitted.append(trees.fit(_columns(blocks, names), target, sample_weight=weight))
    return tuple(fitted)


def _predict(
    trees: Sequence[HistGradientBoostingRegressor], settings: LifeSettings, blocks: Mapping[str, Floats]
) -> Floats:
    parts = [model.predict(_columns(blocks, names)) for model, names in zip(trees, settings.blocks, strict=True)]
    return np.asarray(np.clip(np.mean(parts, axis=0), 0.0, settings.cap))


def _columns(blocks: Mapping[str, Floats], names: Sequence[str]) -> Floats:
    return np.hstack([blocks[name] for name in names])


def _half_widths(
    predicted: Floats, life: Floats, unit: Ints, counted: np.ndarray, coverage: float
) -> tuple[float, ...]:
    """Per band the finite-sample quantile of the error; counted in units, whose rows are not independent."""
    error = np.abs(predicted - life)
    widths = []
    for low, high in zip(BANDS, [*BANDS[1:], np.inf], strict=True):
        mine = counted & (predicted >= low) & (predicted < high)
        units = max(len(np.unique(unit[mine])), 1)
        level = min(1.0, coverage * (1.0 + 1.0 / units))
        widths.append(float(np.quantile(error[mine], level)) if mine.any() else float(error.max()))
    return tuple(widths)


def call_below(life: Floats, failed_soon: np.ndarray, cost_false: float, cost_missed: float) -> float:
    """The predicted life below which a unit is called in, cheapest on training units at these costs.

    ``failed_soon`` tells whether the unit truly failed within the planning horizon.
    """
    candidates = np.concatenate([[-1.0], np.unique(life)])
    costs = [
        cost_false * ((life <= limit) & ~failed_soon).sum() + cost_missed * ((life > limit) & failed_soon).sum()
        for limit in candidates
    ]
    return float(candidates[int(np.argmin(costs))])


def drift(reference: Floats, current: Floats, bins: int = 10) -> float:
    """Population stability index of one feature: below 0.1 steady, above 0.25 the model sees another world."""
    edges = np.quantile(reference, np.linspace(0, 1, bins + 1)[1:-1])
    was = np.bincount(np.searchsorted(edges, reference), minlength=bins) / len(reference) + 1e-4
    now = np.bincount(np.searchsorted(edges, current), minlength=bins) / len(current) + 1e-4
    return float(((now - was) * np.log(now / was)).sum())


def phm_score(error: Floats) -> float:
    """The PHM 2008 penalty, lateness dearer: sum of exp(-e/13) - 1 for early, exp(e/10) - 1 for late estimates."""
    return float(np.where(error < 0, np.expm1(-error / 13.0), np.expm1(error / 10.0)).sum())
