"""Kinds of windows: fixed, sliding, session. Seconds, half open: a window holds ``starts_at <= time < ends_at``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from contracts.errors import Fatal

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Fixed:
    """Windows side by side, from the Unix epoch on; each reading is in one."""

    width_s: int

    def __post_init__(self) -> None:
        _positive("width_s", self.width_s)

    def column(self, time: str) -> Column:
        return F.window(time, f"{self.width_s} seconds")


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of ``width_s`` that start every ``step_s``; a reading is in ``width_s / step_s`` of them."""

    width_s: int
    step_s: int

    def __post_init__(self) -> None:
        _positive("step_s", self.step_s)
        if self.width_s % self.step_s or self.width_s <= self.step_s:
            raise Fatal("a sliding window's width_s must be a multiple of step_s, and more than it")

    def column(self, time: str) -> Column:
        return F.window(time, f"{self.width_s} seconds", f"{self.step_s} seconds")


@dataclass(frozen=True, slots=True)
class Session:
    """Readings that follow each other within ``gap_s``; ends ``gap_s`` after its last one."""

    gap_s: int

    def __post_init__(self) -> None:
        _positive("gap_s", self.gap_s)

    def column(self, time: str) -> Column:
        return F.session_window(time, f"{self.gap_s} seconds")


Kind: TypeAlias = Fixed | Sliding | Session


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise Fatal(f"{name} must be at least 1 s, not {value}")
