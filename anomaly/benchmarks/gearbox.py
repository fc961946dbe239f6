"""Gearbox rig: healthy against broken tooth, trained on healthy windows of the other loads only.

The features do not know the load: level is divided out, shape of the wave, spectrum shares and the correlation of the
channels remain. The score is the mean squared distance in healthy spreads; the figure is the area under ROC on the
load that was left out, and under precision and recall, windows as units.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from anomaly import fit
from anomaly.metrics import average_precision, roc_auc
from anomaly.types import Floats

WINDOW_ROWS = 1024
SPECTRUM_BANDS = 16
TINY = 1e-12


def window_features(window: Floats) -> Floats:
    """Features of one window (rows x channels): kurtosis, crest, skewness, roughness, spectrum, correlations."""
    wave = window - window.mean(axis=0)
    level = np.sqrt((wave**2).mean(axis=0)) + TINY
    unit = wave / level
    rough = np.sqrt((np.diff(unit, axis=0) ** 2).mean(axis=0))
    power = np.abs(np.fft.rfft(unit * np.hanning(len(unit))[:, None], axis=0)) ** 2
    shares = [part.sum(axis=0) for part in np.array_split(power / (power.sum(axis=0) + TINY), SPECTRUM_BANDS)]
    pairs = (unit.T @ unit / len(unit))[np.triu_indices(unit.shape[1], 1)]
    shape = [(unit**4).mean(axis=0), np.abs(unit).max(axis=0), (unit**3).mean(axis=0), rough]
    return np.concatenate([*shape, np.log(np.concatenate(shares) + 1e-9), pairs])


def windows(values: Floats, rows: int = WINDOW_ROWS) -> Floats:
    """Features of the whole windows of a recording, without overlap."""
    starts = range(0, len(values) - rows + 1, rows)
    return np.stack([window_features(values[start : start + rows]) for start in starts])


def unseen_loads(healthy: Mapping[str, Floats], broken: Mapping[str, Floats]) -> dict[str, dict[str, float]]:
    """Per load, when only healthy windows of the other loads trained the distance: areas under ROC and under PR.

    Windows have no order in time that labels could be softened along, so the plain area under PR stands for VUS-PR.
    """
    good = {load: windows(values) for load, values in healthy.items()}
    bad = {load: windows(values) for load, values in broken.items()}
    found: dict[str, dict[str, float]] = {}
    for load in sorted(set(good) & set(bad)):
        others = np.concatenate([rows for other, rows in good.items() if other != load])
        mean, spread = fit.scale(others)
        judged = np.concatenate([good[load], bad[load]])
        truth = np.arange(len(judged)) >= len(good[load])
        score = (((judged - mean) / spread) ** 2).mean(axis=1)
        found[f"load {load} %"] = {
            "roc_auc": roc_auc(score, truth), "pr_auc": average_precision(score, truth.astype(float)),
            "always alarm, pr_auc": float(truth.mean()), "windows": len(truth),
        }  # fmt: skip
    return found
