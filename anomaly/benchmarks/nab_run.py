"""The NAB table: our detector beside random and a plain EWMA z score, per folder, tuning part apart from the rest.

The detector's features were ranked on the tuning part (the artificial series and every second real one by name), but
variants of it were compared on all series as well, so ``rest`` is not blind. The alarm threshold is the benchmark's
own rule, one for the whole corpus and read off its labels; the row ``tuning threshold on the rest`` shows what remains
when it comes from the tuning part only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anomaly.base import Readings
from anomaly.benchmarks.nab import PROFILES, Series, at_threshold, best
from anomaly.detectors.own_past import OwnPast
from anomaly.metrics import vus_pr
from anomaly.types import Bools, Floats, Ints

VUS_BUFFER = 60
"""Rows by which labels are softened; the mean over series with windows."""


@dataclass(frozen=True, slots=True)
class Input:
    """One file: ``name`` is folder/file, ``windows`` are inclusive row numbers."""

    name: str
    at_ms: Ints
    values: Floats
    windows: tuple[tuple[int, int], ...]

    @property
    def folder(self) -> str:
        return self.name.split("/")[0]


def tuning_part(names: Sequence[str]) -> set[str]:
    """Artificial series and, in each other folder, every second name in order."""
    chosen: set[str] = set()
    for folder in {name.split("/")[0] for name in names}:
        mine = sorted(name for name in names if name.startswith(folder + "/"))
        chosen.update(mine if folder.startswith("artificial") else mine[::2])
    return chosen


def own_past(inputs: Sequence[Input], progress: Callable[[str], None]) -> dict[str, Floats]:
    """All series side by side, as devices of one state, moment by moment: the streaming path itself."""
    detector = OwnPast()
    state = detector.start(len(inputs))
    scores = [np.zeros(len(item.values)) for item in inputs]
    longest = max((len(item.values) for item in inputs), default=0)
    chunk = 2_000
    for begin in range(0, longest, chunk):
        progress(f"nab: {begin} of {longest} moments")
        device, at_ms, values, place = _chunk(inputs, begin, begin + chunk)
        readings = Readings(device, at_ms, values[:, None], np.zeros(len(device), dtype=np.int64))
        state, verdict = detector.run(state, readings)
        for number in np.unique(device):
            mine = device == number
            scores[number][place[mine]] = np.nan_to_num(verdict.score[mine])
    return {item.name: score for item, score in zip(inputs, scores, strict=True)}


def _chunk(inputs: Sequence[Input], begin: int, end: int) -> tuple[Ints, Ints, Floats, Ints]:
    parts = [(number, item, slice(begin, min(end, len(item.values)))) for number, item in enumerate(inputs)]
    parts = [part for part in parts if begin < len(part[1].values)]
    device = np.concatenate([np.full(cut.stop - cut.start, number) for number, _, cut in parts])
    place = np.concatenate([np.arange(cut.start, cut.stop) for _, _, cut in parts])
    at_ms = np.concatenate([item.at_ms[cut] for _, item, cut in parts])
    return device, at_ms, np.concatenate([item.values[cut] for _, item, cut in parts]), place


def plain_z(values: Floats, alpha: float = 0.01) -> Floats:
    """The baseline: distance from an EWMA in EWMA spreads."""
    mean, variance, out = float(values[0]), 0.0, np.zeros(len(values))
    for row, value in enumerate(values):
        distance = float(value) - mean
        out[row] = abs(distance) / np.sqrt(variance + 1e-9) if row > 30 else 0.0
        rate = max(alpha, 1.0 / (row + 1))
        mean += rate * distance
        variance = (1 - rate) * (variance + rate * distance**2)
    return out


def table(inputs: Sequence[Input], progress: Callable[[str], None], seed: int = 0) -> dict[str, dict[str, float]]:
    """Rows: detector; columns: profiles over the corpus, then the standard profile per folder and on the rest."""
    rng = np.random.default_rng(seed)
    rows = {
        "own_past": own_past(inputs, progress),
        "EWMA z 0.01": {item.name: plain_z(item.values) for item in inputs},
        "random": {item.name: rng.random(len(item.values)) for item in inputs},
        "constant score (the rule prefers silence)": {item.name: np.ones(len(item.values)) for item in inputs},
    }
    return {name: _row(inputs, scores) for name, scores in rows.items()}


def _row(inputs: Sequence[Input], scores: dict[str, Floats]) -> dict[str, float]:
    corpus = [Series(item.name, scores[item.name], item.windows) for item in inputs]
    tuning = tuning_part([item.name for item in inputs])
    row = {profile.name: best(corpus, profile).score for profile in PROFILES}
    standard = PROFILES[0]
    limit = best(corpus, standard).threshold
    row["threshold"] = limit
    for folder in sorted({item.folder for item in inputs if item.windows}):
        row[folder] = at_threshold([one for one in corpus if one.name.startswith(folder + "/")], standard, limit)
    rest = [one for one in corpus if one.name not in tuning]
    from_tuning = best([one for one in corpus if one.name in tuning], standard).threshold
    row["rest"] = at_threshold(rest, standard, limit) if rest else float("nan")
    row["tuning threshold on the rest"] = at_threshold(rest, standard, from_tuning) if rest else float("nan")
    marked = [one for one in corpus if one.windows]
    row["vus_pr"] = float(np.mean([vus_pr(one.scores, _inside(one), VUS_BUFFER) for one in marked]))
    return row


def _inside(one: Series) -> Bools:
    rows = np.arange(len(one.scores))
    return np.asarray(np.any([(rows >= left) & (rows <= right) for left, right in one.windows], axis=0))
