"""From healthy readings to the frozen parameters of layer (c): plain linear algebra, deterministic.

Every fit takes the healthy part only; a channel that never moved gets the spread of one resolution step instead of
zero, so that its first movement is seen and does not divide by nothing.
"""

from __future__ import annotations

import numpy as np

from anomaly.errors import BadParameters
from anomaly.types import Floats

MIN_ROWS = 30
SETTLE = 50
"""Rows left out at the start of a smoothed training part: the mean has not settled there."""


def scale(healthy: Floats) -> tuple[Floats, Floats]:
    """Mean and spread of each column. Raises BadParameters on too few rows."""
    if len(healthy) < MIN_ROWS:
        raise BadParameters(f"{len(healthy)} healthy rows are too few; give at least {MIN_ROWS}")
    mean, spread = healthy.mean(axis=0), healthy.std(axis=0)
    return mean, np.where(spread > 0, spread, np.maximum(1e-6 * np.abs(mean), 1e-9))


def smoothed(values: Floats, alpha: float, start: Floats | None = None) -> Floats:
    """EWMA down the rows; begins at ``start`` (zero by default, the mean of standardised values)."""
    out = np.empty_like(values)
    mean = np.zeros(values.shape[1]) if start is None else start
    for row, value in enumerate(values):
        mean = mean + alpha * (value - mean)
        out[row] = mean
    return out


def shrunk_inverse(rows: Floats, shrink: float) -> Floats:
    """Inverse covariance around zero, its correlations shrunk towards none by ``shrink`` in [0, 1]."""
    covariance = rows.T @ rows / len(rows)
    own = np.diag(np.diag(covariance))
    ridge = 1e-3 * max(float(np.trace(covariance)) / len(covariance), 1e-12)
    mixed = (1.0 - shrink) * covariance + shrink * own + ridge * np.eye(len(covariance))
    return np.asarray(np.linalg.inv(mixed))


def principal(rows: Floats, share: float) -> tuple[Floats, Floats]:
    """Loadings (channels x kept) and variances of the fewest components that explain ``share`` of the variance."""
    _, sizes, directions = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    variance = sizes**2 / max(1, len(rows) - 1)
    kept = min(int(np.searchsorted(np.cumsum(variance) / variance.sum(), share)) + 1, max(1, len(variance) - 1))
    return directions[:kept].T, np.maximum(variance[:kept], 1e-12)


def frozen(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    """A matrix as nested tuples, for parameters."""
    return tuple(tuple(float(value) for value in row) for row in matrix)
