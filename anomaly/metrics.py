"""Figures that stand in every table: confusion at a threshold, area under ROC, VUS-PR, events and their delay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anomaly.types import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Confusion:
    """Shares in [0, 1]; NaN where the denominator is empty."""

    f1: float
    far: float
    mar: float


def confusion(alarm: Bools, truth: Bools) -> Confusion:
    """F1, false alarm rate (of normal rows), missed alarm rate (of anomalous rows)."""
    hit, false = int((alarm & truth).sum()), int((alarm & ~truth).sum())
    missed, quiet = int((~alarm & truth).sum()), int((~alarm & ~truth).sum())
    return Confusion(
        _share(2 * hit, 2 * hit + false + missed), _share(false, false + quiet), _share(missed, hit + missed)
    )


def missed_at_far(score: Floats, truth: Bools, far: float) -> float:
    """Missed alarm rate at the threshold that gives this false alarm rate: an oracle threshold, say so beside it."""
    threshold = np.quantile(score[~truth], 1.0 - far)
    return float((score[truth] <= threshold).mean())


def roc_auc(score: Floats, truth: Bools) -> float:
    """Probability that an anomalous row scores above a normal one; ties count half."""
    order = np.argsort(score, kind="stable")
    _, first, count = np.unique(score[order], return_index=True, return_counts=True)
    ranks = np.empty(len(score))
    ranks[order] = np.repeat(first + (count + 1) / 2.0, count)
    positive, negative = int(truth.sum()), int((~truth).sum())
    if not positive or not negative:
        return float("nan")
    return float((ranks[truth].sum() - positive * (positive + 1) / 2.0) / (positive * negative))


def average_precision(score: Floats, weight: Floats) -> float:
    """Area under precision and recall for soft labels in [0, 1] (step rule)."""
    order = np.argsort(-score, kind="stable")
    hit = np.cumsum(weight[order])
    ends = np.append(score[order][1:] != score[order][:-1], True)
    precision, recall = hit[ends] / (np.flatnonzero(ends) + 1.0), hit[ends] / max(hit[-1], 1e-12)
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def vus_pr(score: Floats, truth: Bools, widest: int, steps: int = 5) -> float:
    """Volume under the PR surface, a plain form: labels softened by buffers of 0 .. ``widest`` rows, averaged.

    A row at distance d from an anomaly counts sqrt(1 - d / (buffer + 1)), as in Paparrizos and others 2022. The
    recall of that paper also rewards whole events; this form does not, so compare it only with itself.
    """
    gap = _distance(truth)
    found = []
    for buffer in np.linspace(0, widest, steps):
        soft = np.sqrt(np.clip(1.0 - gap / (buffer + 1.0), 0.0, 1.0))
        found.append(average_precision(score, soft))
    return float(np.mean(found))


def poisson_upper(events: int, exposure: float) -> float:
    """Upper end of the one-sided 95 % interval of a rate, exact, by bisection on the Poisson distribution."""
    low, high = 0.0, 10.0 + 3.0 * events
    for _ in range(60):
        middle = (low + high) / 2.0
        terms = np.cumsum(np.log(np.maximum(np.arange(events + 1), 1)))
        chance = np.exp(-middle + np.arange(events + 1) * np.log(max(middle, 1e-300)) - terms).sum()
        low, high = (middle, high) if chance > 0.05 else (low, middle)
    return high / exposure


def _distance(truth: Bools) -> Ints:
    """Rows to the nearest anomalous row."""
    where = np.flatnonzero(truth)
    if not len(where):
        return np.full(len(truth), np.iinfo(np.int64).max // 2)
    rows = np.arange(len(truth))
    after = np.searchsorted(where, rows)
    right = np.abs(where[np.minimum(after, len(where) - 1)] - rows)
    left = np.abs(rows - where[np.maximum(after - 1, 0)])
    return np.asarray(np.minimum(left, right), dtype=np.int64)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
