"""Strips read as text, pure. One character per ten minutes: ``1`` it held, ``0`` it did not, ``.`` nothing was told."""

from __future__ import annotations

import re
from collections.abc import Iterator

BUCKETS_PER_DAY = 144
NOTHING = "." * BUCKETS_PER_DAY
_RUN = re.compile("1+")


def join(days: dict[int, str], count: int) -> str:
    """One strip over ``count`` days; a day that is not there tells nothing."""
    return "".join([days.get(day, NOTHING) for day in range(count)])


def overlay(one: str, other: str) -> str:
    """Two devices of one vehicle: it held if either says so, it did not if none says more."""
    return "".join(map(max, one, other))


def known(strip: str) -> int:
    return len(strip) - strip.count(".")


def runs(strip: str) -> Iterator[tuple[int, int]]:
    """(first bucket, number of buckets) of each unbroken run of ``1``; a bucket that tells nothing ends it."""
    for found in _RUN.finditer(strip):
        yield found.start(), found.end() - found.start()


def beginnings(strip: str) -> int:
    """How often it began to hold after it had not; silence in between is passed over, a strip's own start is none."""
    return strip.replace(".", "").count("01")
