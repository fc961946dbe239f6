"""Strips read as text, pure. One character per ten minutes: ``1`` it held, ``0`` it did not, ``.`` nothing was told."""

from __future__ import annotations

from collections.abc import Sequence

BUCKETS_PER_DAY = 144
NOTHING = "." * BUCKETS_PER_DAY


def join(days: dict[int, str], count: int) -> str:
    """One strip over ``count`` days; a day that is not there tells nothing."""
    return "".join([days.get(day, NOTHING) for day in range(count)])


def overlay(one: str, other: str) -> str:
    """Two devices of one vehicle: it held if either says so, it did not if none says more."""
    return "".join(map(max, one, other))


def known(strip: str) -> int:
    return len(strip) - strip.count(".")


def sessions(days: Sequence[str]) -> list[tuple[int, int]]:
    """(how many, buckets in all) of unbroken runs of ``1`` by the day on which they begin; also what they last on into
    later days counts there. A bucket that tells nothing ends a run."""
    made: list[tuple[int, int]] = []
    before, owner = "0", 0
    for day, strip in enumerate(days):
        plain = strip.replace(".", "0")
        began, lasting = (before + plain).count("01"), 0
        if before == "1":
            lasting = len(plain) - len(plain.lstrip("1"))
            made[owner] = made[owner][0], made[owner][1] + lasting
        made.append((began, plain.count("1") - lasting))
        if began:
            owner = day
        before = plain[-1:] or before
    return made


def beginnings(strip: str) -> int:
    """How often it began to hold after it had not; silence in between is passed over, a strip's own start is none."""
    return strip.replace(".", "").count("01")
