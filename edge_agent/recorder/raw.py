"""Cuts the raw motion around an event out of the ring. Pure."""

from __future__ import annotations

from typing import Final

from contracts.edr.raw import RawMotion, encode_raw
from edge_agent.recorder.rings import MotionRing

BEFORE_US: Final = 1_000_000
AFTER_US: Final = 5_000_000
"""A crash and its tail; a roll is told for five seconds."""

MM_PER_M: Final = 1_000


def raw_motion(ring: MotionRing, zero_us: int) -> bytes:
    """The attachment's bytes; empty when the ring holds nothing of that time."""
    stretch = ring.between(zero_us - BEFORE_US, zero_us + AFTER_US)
    if not stretch.times_us:
        return b""
    x, y, z = (tuple(round(value * MM_PER_M) for value in axis) for axis in stretch.axes)
    after_us = tuple(at_us - zero_us for at_us in stretch.times_us)
    return encode_raw(RawMotion(after_us, x, y, z, stretch.limits.tobytes()))
