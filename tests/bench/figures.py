"""What a benchmark says: a figure with its spread, its target and the conditions under which it was read."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the results. ``runs`` are the single readings; ``target`` is what the design asks for."""

    name: str
    unit: str
    runs: tuple[float, ...]
    target: float | None = None
    at_least: bool = True
    conditions: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None where the design sets none."""
        if self.target is None:
            return None
        return self.median >= self.target if self.at_least else self.median <= self.target

    def as_json(self) -> dict[str, object]:
        return {
            "unit": self.unit, "min": round(min(self.runs), 3), "median": round(self.median, 3),
            "max": round(max(self.runs), 3), "runs": len(self.runs), "target": self.target, "met": self.met,
        }  # fmt: skip


@dataclass(slots=True)
class Spent:
    """Wall and CPU seconds of a stretch of work, CPU of this process and of the children that ended in it."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextmanager
def spent() -> Iterator[Spent]:
    """Measure a stretch of work in this process."""
    result, wall, cpu = Spent(), time.perf_counter(), _cpu_s()
    yield result
    result.wall_s, result.cpu_s = time.perf_counter() - wall, _cpu_s() - cpu


def repeat(times: int, work: Callable[[], float]) -> tuple[float, ...]:
    """Run ``work`` several times and keep what it returns."""
    return tuple(work() for _ in range(times))


def machine() -> dict[str, str]:
    """The conditions of every figure: cores, memory, kernel, Python."""
    memory_kb = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1])
    return {
        "cores": str(os.cpu_count()),
        "memory_gib": f"{memory_kb / 2**20:.0f}",
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "load_at_start": f"{os.getloadavg()[0]:.1f}",
    }


def table(figures: Sequence[Figure]) -> list[str]:
    """Markdown rows."""
    lines = ["| what | unit | minimum | median | maximum | target | met | conditions |", "|---" * 8 + "|"]
    for f in figures:
        target = "–" if f.target is None else f"{'≥' if f.at_least else '≤'} {f.target:g}"
        met = "–" if f.met is None else "yes" if f.met else "**no**"
        low, mid, high = (
            f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}" for value in (min(f.runs), f.median, max(f.runs))
        )
        lines.append(f"| {f.name} | {f.unit} | {low} | {mid} | {high} | {target} | {met} | {f.conditions} |")
    return lines


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@dataclass(slots=True)
class Report:
    """Figures of one script, with a sentence on what limits them."""

    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
