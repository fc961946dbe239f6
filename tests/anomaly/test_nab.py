"""NAB's scoring against a plain row-by-row reading of its definition, and its fixed points."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anomaly.benchmarks.nab import PROFILES, Profile, Series, at_threshold, best, probation


def slow_total(series: Series, profile: Profile, threshold: float) -> float:
    """The published definition, one row after the other."""
    rows, total, hit = len(series.scores), 0.0, {}
    start = min(math.floor(0.15 * rows), 750)
    for left, right in series.windows:
        if right >= start:
            hit[left, right] = -profile.fn
    for row in range(start, rows):
        if series.scores[row] < threshold:
            continue
        inside = [window for window in series.windows if window[0] <= row <= window[1]]
        if inside:
            left, right = inside[0]
            position = -(right - row + 1) / (right - left + 1)
            worth = (2 / (1 + math.exp(5 * position)) - 1) / (2 / (1 + math.exp(-5)) - 1)
            hit[left, right] = max(hit[left, right], worth * profile.tp)
            continue
        behind = [window for window in series.windows if window[1] < row]
        if not behind:
            total -= profile.fp
            continue
        left, right = behind[-1]
        position = (row - right) / max(1, right - left)
        total += profile.fp * (-1.0 if position >= 3 else 2 / (1 + math.exp(5 * position)) - 1)
    return total + sum(hit.values())


def series(seed: int, rows: int = 200) -> Series:
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(1, rows - 1), size=4, replace=False))
    windows = ((int(cuts[0]), int(cuts[1]) - 1), (int(cuts[2]), int(cuts[3])))
    return Series(f"s{seed}", rng.integers(0, 6, rows) / 5.0, tuple(w for w in windows if w[0] <= w[1]))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.0, 0.2, 0.6, 1.0, 1.1]))
@settings(max_examples=60, deadline=None)
def test_it_agrees_with_the_definition(profile: Profile, seed: int, threshold: float) -> None:
    corpus = [series(seed), series(seed + 1)]
    counted = sum(right >= probation(len(one.scores)) for one in corpus for _, right in one.windows)
    total = sum(slow_total(one, profile, threshold) for one in corpus)
    null, perfect = -profile.fn * counted, profile.tp * counted
    wanted = 100 * (total - null) / (perfect - null) if counted else 0.0
    assert at_threshold(corpus, profile, threshold) == pytest.approx(wanted)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_the_best_threshold_is_the_best_of_all(seed: int) -> None:
    corpus = [series(seed), series(seed + 1), series(seed + 2)]
    found = best(corpus, PROFILES[0])
    tried = [at_threshold(corpus, PROFILES[0], level) for level in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 9.0)]
    assert found.score == pytest.approx(max(tried))
    assert at_threshold(corpus, PROFILES[0], found.threshold) == pytest.approx(found.score)


def test_perfect_is_100_and_silence_is_0() -> None:
    scores = np.zeros(1000)
    scores[[400, 700]] = 1.0
    corpus = [Series("one", scores, ((400, 450), (700, 760)))]
    for profile in PROFILES:
        assert at_threshold(corpus, profile, 1.0) == pytest.approx(100.0)
        assert at_threshold(corpus, profile, 2.0) == pytest.approx(0.0)


def test_probation_is_15_percent_and_at_most_750() -> None:
    assert (probation(1000), probation(5000), probation(22_695)) == (150, 750, 750)
