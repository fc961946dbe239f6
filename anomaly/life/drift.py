"""Does the model still see the world it was trained on? Population stability index per feature, in two small tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from anomaly.types import Floats

BINS = 10
STEADY = 0.1
ANOTHER_WORLD = 0.25
"""Usual readings of the index: below STEADY nothing moved, above ANOTHER_WORLD the model should be trained anew."""
LEAST_SHARE = 1e-4


@dataclass(frozen=True)
class Reference:
    """Inner edges of equally filled bins (columns x BINS - 1) and the shares that training rows had in them."""

    edges: Floats
    shares: Floats

    @classmethod
    def of(cls, rows: Floats) -> Self:
        edges = np.quantile(rows, np.linspace(0, 1, BINS + 1)[1:-1], axis=0).T
        return cls(edges, _shares(edges, rows))

    def index(self, rows: Floats) -> Floats:
        """Stability index of each column of the rows seen now."""
        now = _shares(self.edges, rows)
        return np.asarray(((now - self.shares) * np.log(now / self.shares)).sum(axis=1))


def _shares(edges: Floats, rows: Floats) -> Floats:
    places = [np.searchsorted(edge, column) for edge, column in zip(edges, rows.T, strict=True)]
    return np.stack([np.bincount(place, minlength=BINS) / len(rows) + LEAST_SHARE for place in places])
