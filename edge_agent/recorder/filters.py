"""The channel frequency class filter of SAE J211-1, which acceleration histories must pass (49 CFR 563.8(b))."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

CFC60_FACTOR_HZ: Final = 60 * 2.0775
"""Class 60: the standard's design frequency for its two-pole section, run forwards and backwards (no phase shift)."""

SLOWEST_STEP_US: Final = 2_000
"""Sampled slower than 500 Hz there is nothing left above the filter's band worth removing: left as it is."""


def cfc60(samples: Sequence[float], step_us: int) -> list[float]:
    """The filtered samples, same length. Give 20 ms before and after what is wanted: the ends settle there."""
    if step_us > SLOWEST_STEP_US or len(samples) < 3:
        return list(samples)
    wa = math.tan(2 * math.pi * CFC60_FACTOR_HZ * step_us / 2e6)
    scale = 1 + math.sqrt(2) * wa + wa * wa
    a0 = wa * wa / scale
    b1 = -2 * (wa * wa - 1) / scale
    b2 = (-1 + math.sqrt(2) * wa - wa * wa) / scale
    forward = _section(samples, a0, b1, b2)
    forward.reverse()
    backward = _section(forward, a0, b1, b2)
    backward.reverse()
    return backward


def _section(samples: Sequence[float], a0: float, b1: float, b2: float) -> list[float]:
    x1 = x2 = y1 = y2 = samples[0]
    out = []
    for x0 in samples:
        y0 = a0 * (x0 + 2 * x1 + x2) + b1 * y1 + b2 * y2
        out.append(y0)
        x2, x1, y2, y1 = x1, x0, y1, y0
    return out
