"""SKAB valve runs by the board's split: the first 400 rows of each run train, the rest is judged, pooled.

One setting for all runs. The threshold of a run is a multiple of its own largest training distance: no label is
read. The figure at a matched false alarm rate needs an oracle threshold by its nature and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anomaly.base import Detector, Readings, Verdict
from anomaly.detectors.mahalanobis import Mahalanobis
from anomaly.detectors.subspace import Subspace
from anomaly.metrics import confusion, missed_at_far, roc_auc, vus_pr
from anomaly.types import Bools, Floats

TRAIN_ROWS = 400
BOARD_FAR = 0.1355
"""False alarm rate of the best published autoencoder row, at which missed alarms are compared."""
VUS_BUFFER = 60
ALPHA = 0.2
MARGIN = 1.5
"""Threshold over the largest training distance; 400 s do not show a rig's drift, so 1 would alarm for ever.

Both are the best F1 on every second run (those that ``rest`` leaves out) among alpha 0.05, 0.1, 0.2 and margins
1.25 to 3."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the rig: values (rows x channels) and which rows are anomalous."""

    name: str
    values: Floats
    anomalous: Bools


def trained(kind: str, healthy: Floats) -> Detector:
    """The detectors of the table, by name."""
    if kind == "subspace":
        return Subspace.trained(healthy, alpha=ALPHA, margin=MARGIN)
    return Mahalanobis.trained(healthy, alpha=ALPHA, margin=MARGIN)


def judge(detector: Detector, values: Floats) -> Verdict:
    """Judge one run from its first row on, one reading a second."""
    count = len(values)
    nothing = np.zeros(count, dtype=np.int64)
    readings = Readings(nothing, 1_000 * np.arange(count), values, nothing)
    return detector.run(detector.start(1), readings)[1]


def rest(runs: Sequence[Run]) -> Sequence[Run]:
    """The runs on which alpha and margin were not chosen: every second one, beginning with the second."""
    return runs[1::2]


def table(runs: Sequence[Run], seed: int = 0) -> dict[str, dict[str, float]]:
    """Rows of the table: our detectors on all runs and on the rest, always alarm, random."""
    truth = np.concatenate([run.anomalous[TRAIN_ROWS:] for run in runs])
    rows: dict[str, dict[str, float]] = {}
    for kind in ("mahalanobis", "subspace"):
        rows[kind] = _judged(kind, runs)
        if len(rest(runs)):
            rows[f"{kind}, runs not tuned on"] = _judged(kind, rest(runs))
    noise = np.random.default_rng(seed).random(len(truth))
    rows["always alarm"] = _row(np.ones(len(truth), dtype=bool), np.zeros(len(truth)), truth)
    rows["random"] = _row(noise > 0.5, noise, truth)
    return rows


def _judged(kind: str, runs: Sequence[Run]) -> dict[str, float]:
    verdicts = [judge(trained(kind, run.values[:TRAIN_ROWS]), run.values) for run in runs]
    alarm = np.concatenate([verdict.alarm[TRAIN_ROWS:] for verdict in verdicts])
    score = np.concatenate([verdict.score[TRAIN_ROWS:] for verdict in verdicts])
    return _row(alarm, score, np.concatenate([run.anomalous[TRAIN_ROWS:] for run in runs]))


def _row(alarm: Bools, score: Floats, truth: Bools) -> dict[str, float]:
    found = confusion(alarm, truth)
    row = {"f1": found.f1, "far": found.far, "mar": found.mar}
    row["mar_at_far_13.55_oracle"] = missed_at_far(score, truth, BOARD_FAR)
    return {**row, "roc_auc": roc_auc(score, truth), "vus_pr": vus_pr(score, truth, VUS_BUFFER)}
