"""Boosted trees from features to remaining life, an interval that covers as often as it says, a cost threshold.

Whole units are dealt into folds. For each fold a wear index (ridge regression of the capped life on the standardised
sensors) and trees on features and index are fitted to the other units; the point estimate is the mean over folds.
A tracker smooths it in time: a unit that is not fresh lives one cycle less with each cycle, and each new
estimate moves it by ``gain``. The interval is conformal (Vovk; Barber and others 2021, "Predictive inference with
the jackknife+"): half-widths are quantiles of the absolute error on the units that a fold did not see, one for each
band of the prediction. Rows of a unit are nearly copies, so a share of them trains, drawn anew for each fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from anomaly.errors import BadParameters
from anomaly.life.drift import Reference
from anomaly.life.features import begins_of, index_columns, side_by_side
from anomaly.types import Bools, Floats, Ints

BANDS = (0.0, 30.0, 60.0, 90.0, 115.0)
"""Lower ends, in cycles of predicted life, of the bands that have their own interval width."""
INDEX_RIDGE = 10.0
RAW_STEP = 5.0
"""Width in cycles of the steps in which the estimate is translated to lives that are not cut."""
FRESH = 15.0
"""Estimates within this many cycles of the cap say no more than that the unit is fresh: it does not count down."""


@dataclass(frozen=True, slots=True)
class LifeSettings:
    """Lives are in cycles. Chosen on units left out of the training part (decision 067)."""

    columns: tuple[str, ...] = (
        "short", "middle", "trend", "middle_shrunk", "short_shrunk", "restless", "cycle", "index",
    )  # fmt: skip
    cap: float = 125.0
    far: float = 145.0
    far_share: float = 0.3
    rows_a_unit: float = 60.0
    """About as many rows of each unit train; its other rows are nearly copies of these."""
    raw_cap: float = 130.0
    """Where ``uncut`` stops."""
    folds: int = 5
    trees: int = 250
    learning_rate: float = 0.05
    leaves: int = 8
    leaf_rows: int = 30
    l2: float = 1.0
    share_of_columns: float = 0.3
    gain: float = 0.3
    coverage: float = 0.9
    cost_false: float = 1.0
    cost_missed: float = 50.0
    horizon: float = 30.0
    """A unit that fails within so many cycles should have been called in."""


@dataclass(frozen=True)
class Fold:
    """Wear index and trees of one fold."""

    index: Floats
    trees: HistGradientBoostingRegressor


@dataclass(frozen=True)
class LifeModel:
    """Folds, conformal half-widths per band, the life at which a unit is called in, what training rows looked like."""

    settings: LifeSettings
    folds: tuple[Fold, ...]
    half_widths: tuple[float, ...]
    call_at: float
    left_out_rmse: float
    raw: Floats
    reference: Reference

    def predict(self, blocks: Mapping[str, Floats], unit: Ints) -> tuple[Floats, Floats, Floats]:
        """Remaining life, lower and upper end of the interval, for each row of units told from their first cycle on."""
        begins = begins_of(unit)
        mean = np.mean([_raw(fold, self.settings, blocks, begins) for fold in self.folds], axis=0)
        life = track(mean, begins, self.settings)
        half = np.asarray(self.half_widths)[np.maximum(np.searchsorted(BANDS, life, side="right") - 1, 0)]
        cap = self.settings.cap
        return life, np.clip(life - half, 0.0, cap), np.clip(life + half, 0.0, cap)

    def uncut(self, life: Floats) -> Floats:
        """What capped estimates mean in lives that are not cut at the cap but at ``raw_cap``."""
        return np.asarray(np.interp(life, np.arange(len(self.raw)) * RAW_STEP, self.raw))


def train(blocks: Mapping[str, Floats], unit: Ints, life: Floats, seed: int, settings: LifeSettings) -> LifeModel:
    """Fit on runs to failure; raises BadParameters when they are too few for the folds."""
    units = np.unique(unit)
    if len(units) < 2 * settings.folds:
        raise BadParameters(
            f"{len(units)} units are too few to learn remaining life; give {2 * settings.folds} or more"
        )
    rng, begins = np.random.default_rng(seed), begins_of(unit)
    shuffled = rng.permutation(units)
    left_out, folds = np.zeros(len(life)), []
    for number in range(settings.folds):
        apart = np.isin(unit, shuffled[number :: settings.folds])
        fold = _fit(
            blocks,
            begins,
            life,
            _drawn(rng, life, ~apart, int((begins & ~apart).sum()), settings),
            seed * 101 + number,
            settings,
        )
        rest = {name: block[apart] for name, block in blocks.items()}
        left_out[apart] = track(_raw(fold, settings, rest, begins[apart]), begins[apart], settings)
        folds.append(fold)
    target, counted = np.minimum(life, settings.cap), life < settings.far
    widths = _half_widths(left_out, target, unit, counted, settings.coverage)
    call_at = call_below(np.round(left_out), life <= settings.horizon, settings.cost_false, settings.cost_missed)
    missed = float(np.sqrt(((left_out - target)[counted] ** 2).mean()))
    return LifeModel(
        settings, tuple(folds), widths, call_at, missed, _uncut(left_out, life, settings), Reference.of(blocks["short"])
    )


def track(estimate: Floats, begins: Bools, settings: LifeSettings) -> Floats:
    """Estimates smoothed down the cycles of each unit, within 0 .. cap; a recursion, so nothing looks ahead."""
    out, now = np.empty_like(estimate), np.zeros(int(begins.sum()))
    fresh = settings.cap - FRESH
    for nth, rows in enumerate(side_by_side(begins)):
        told, before = estimate[rows], now[: len(rows)]
        counted = before - np.where((told < fresh) | (before < fresh), 1.0, 0.0)
        now[: len(rows)] = told if nth == 0 else counted + settings.gain * (told - counted)
        out[rows] = now[: len(rows)]
    return np.asarray(np.clip(out, 0.0, settings.cap))


def _drawn(rng: np.random.Generator, life: Floats, allowed: Bools, units: int, settings: LifeSettings) -> Ints:
    """Rows that train: those far from failure are rarer, and about ``rows_a_unit`` of each unit in all.

    Drawing does what weights would; the tree library bins weighted columns tens of times slower.
    """
    wanted = np.where(life > settings.far, settings.far_share, 1.0) * allowed
    return np.flatnonzero(
        rng.random(len(life)) < wanted * min(1.0, settings.rows_a_unit * units / max(wanted.sum(), 1.0))
    )


def _fit(
    blocks: Mapping[str, Floats], begins: Bools, life: Floats, rows: Ints, seed: int, settings: LifeSettings
) -> Fold:
    target = np.minimum(life[rows], settings.cap)
    known = np.hstack([blocks["z"][rows], np.ones((len(rows), 1))])
    ridge = INDEX_RIDGE * np.eye(known.shape[1])
    index = np.linalg.solve(known.T @ known + ridge, known.T @ target)
    trees = HistGradientBoostingRegressor(
        max_iter=settings.trees, learning_rate=settings.learning_rate, max_leaf_nodes=settings.leaves,
        min_samples_leaf=settings.leaf_rows, l2_regularization=settings.l2, early_stopping=False,
        max_features=settings.share_of_columns, random_state=seed,
    )  # fmt: skip
    worn = index_columns(blocks["z"], index, begins)[rows]
    part = {name: block[rows] for name, block in blocks.items()}
    return Fold(index, trees.fit(_columns({**part, "index": worn}, settings), target))


def _raw(fold: Fold, settings: LifeSettings, blocks: Mapping[str, Floats], begins: Bools) -> Floats:
    worn = index_columns(blocks["z"], fold.index, begins)
    return np.asarray(fold.trees.predict(_columns({**blocks, "index": worn}, settings)))


def _columns(blocks: Mapping[str, Floats], settings: LifeSettings) -> Floats:
    return np.hstack([blocks[name] for name in settings.columns])


def _half_widths(predicted: Floats, life: Floats, unit: Ints, counted: Bools, coverage: float) -> tuple[float, ...]:
    """Per band the finite-sample quantile of the error; counted in units, whose rows are not independent."""
    error = np.abs(predicted - life)
    widths = []
    for low, high in zip(BANDS, [*BANDS[1:], np.inf], strict=True):
        mine = counted & (predicted >= low) & (predicted < high)
        units = max(len(np.unique(unit[mine])), 1)
        level = min(1.0, coverage * (1.0 + 1.0 / units))
        widths.append(float(np.quantile(error[mine], level)) if mine.any() else float(error.max()))
    return tuple(widths)


def _uncut(left_out: Floats, life: Floats, settings: LifeSettings) -> Floats:
    """Mean life, cut at ``raw_cap``, of rows left out whose estimate lies around each step; never falling."""
    weight = np.where(life > settings.far, settings.far_share, 1.0)
    place = np.rint(left_out / RAW_STEP).astype(np.int64)
    steps = int(np.rint(settings.cap / RAW_STEP)) + 1
    held = np.bincount(place, weights=weight, minlength=steps)
    total = np.bincount(place, weights=weight * np.minimum(life, settings.raw_cap), minlength=steps)
    told = np.where(held > 0, total / np.maximum(held, 1e-9), RAW_STEP * np.arange(steps))
    return np.asarray(np.maximum.accumulate(told))


def call_below(life: Floats, failed_soon: Bools, cost_false: float, cost_missed: float) -> float:
    """The predicted life up to which a unit is called in, cheapest on training units at these costs.

    ``failed_soon`` tells whether the unit truly failed within the planning horizon.
    """
    candidates, place = np.unique(life, return_inverse=True)
    false = np.bincount(place, weights=~failed_soon, minlength=len(candidates))
    soon = np.bincount(place, weights=failed_soon, minlength=len(candidates))
    costs = cost_false * np.append(0.0, np.cumsum(false)) + cost_missed * (soon.sum() - np.append(0.0, np.cumsum(soon)))
    return float(np.append(-1.0, candidates)[int(np.argmin(costs))])


def phm_score(error: Floats) -> float:
    """The PHM 2008 penalty, lateness dearer: sum of exp(-e/13) - 1 for early, exp(e/10) - 1 for late estimates."""
    return float(np.where(error < 0, np.expm1(-error / 13.0), np.expm1(error / 10.0)).sum())
