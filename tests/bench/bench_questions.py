"""The thirteen fleet questions over HTTP: how long each takes, and what it costs, with 4,000 trucks and three days.

FLEETSTREAM_BENCH_TRUCKS sets the size; ``fill_questions`` says what lies in the store.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil

from api.fleet.base import DAYS, Question
from api.fleet.menu import QUESTIONS
from tests.bench import fill_history, fill_questions
from tests.bench.bench_history import serving
from tests.bench.figures import Figure, Report
from tests.bench.fill_questions import Filled

TRUCKS = "FLEETSTREAM_BENCH_TRUCKS"
DEFAULT_TRUCKS = 4_000
ASKED = 25
TARGET_MS = 200.0
DAY_S = 86_400


def run() -> Report:
    """Fill, then ask each question so often, another fleet, vehicle and time each."""
    trucks = int(os.environ.get(TRUCKS, DEFAULT_TRUCKS))
    home = Path(tempfile.mkdtemp(prefix="fleetstream-questions-"))
    try:
        with fill_history.store(home) as postgres:
            filled = fill_questions.fill(postgres, trucks, int(time.time()) // DAY_S * DAY_S)
            with serving(postgres) as client:
                return measure(client, filled)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def measure(client: httpx.Client, filled: Filled) -> Report:
    report = Report("Fleet questions")
    dice = random.Random(1)
    for question in QUESTIONS:
        took, cpu_ms, rows, size = _ask(lambda q=question: _once(client, q, dice, filled))  # type: ignore[misc]
        what = "the fleet's" if "fleet" in parameters(question, dice, filled) else "all"
        conditions = f"{ASKED} questions over HTTP, one at a time; up to {rows:,} rows, {size:,} bytes; {what} trucks"
        report.figures += [
            Figure(f"{question.name}, p50", "ms", (statistics.median(took),), None, False, conditions),
            Figure(
                f"{question.name}, p95", "ms", (sorted(took)[-(-len(took) * 95 // 100) - 1],), TARGET_MS, False,
                "the same",
            ),
            Figure(f"{question.name}, CPU", "CPU-ms", (cpu_ms,), None, False, "per question, all processes"),
        ]  # fmt: skip
    report.notes += [
        f"{filled.trucks:,} trucks, {fill_questions.DAYS} days of ten-minute buckets in strips, filled by SQL, strips "
        "drawn by the store's trigger; not there: windows of 10 s, and minutes between tens before the last four hours",
        "questions 1 to 7 ask about one of four fleets (2: one truck), the others about all trucks and days, as TSBS",
    ]
    return report


def parameters(question: Question, dice: random.Random, filled: Filled) -> dict[str, Any]:
    """As the suite draws them."""
    said: dict[str, Any] = {"limit": 20_000}
    if "asset" in question.takes:
        said["asset"] = f"truck_{dice.randrange(filled.trucks)}"
    elif question.time is not DAYS:
        said["fleet"] = dice.choice(("East", "West", "North", "South"))
    if question.time is DAYS:
        said |= {"from": _time(filled.start_s), "to": _time(filled.end_s)}
    elif question.time.width_ms:
        width_s, step_s = question.time.width_ms // 1_000, question.time.step_ms // 1_000
        span_s = fill_questions.DENSE_MIN * 60 if step_s == 60 else filled.end_s - filled.start_s
        steps = (span_s - width_s) // step_s
        said["from"] = _time(filled.end_s - span_s + dice.randint(0, steps) * step_s)
    return said


def _once(client: httpx.Client, question: Question, dice: random.Random, filled: Filled) -> httpx.Response:
    return client.get(f"/api/v1/questions/{question.name}", params=parameters(question, dice, filled))


def _ask(ask: Callable[[], httpx.Response]) -> tuple[list[float], float, int, int]:
    """(milliseconds of each, CPU milliseconds of one, most rows, most bytes)."""
    ask().raise_for_status()
    took, rows, size, before_s = [], 0, 0, tree_cpu_s()
    for _ in range(ASKED):
        began = time.perf_counter()
        answer = ask()
        took.append((time.perf_counter() - began) * 1_000)
        rows = max(rows, len(answer.raise_for_status().json()["items"]))
        size = max(size, len(answer.content))
    return took, (tree_cpu_s() - before_s) * 1_000 / ASKED, rows, size


def tree_cpu_s() -> float:
    """CPU seconds of this process and all below it, ended ones included."""
    me, total = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent = process.cpu_times()
            total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")
