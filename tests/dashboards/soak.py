"""An hour on the console: does the page keep what it should let go?

``python -m tests.dashboards.soak ADDRESS [--minutes 60] [--page FILE]`` with the ADDRESS that `fleetstream demo`
prints, key and all. A headless Chromium goes round the pages, one round a minute: live lists, the map dragged and
zoomed, charts of several ranges, alerts, ledger, questions, crashes. Each round ends on the same page; garbage is
collected (twice, as finalizers may free more) and what is left is counted. The last line is one JSON object; the exit
code is 1 when something grows.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures import machine
from tests.dashboards.browser import Browser, find_browser, open_browser

COUNTS = {
    "heap_kib": "JavaScript heap in use, KiB", "nodes": "DOM nodes alive", "detached": "elements outside the page",
    "listeners": "event listeners",
}  # fmt: skip
WARM_UP_SHARE, LEAST_WARM_UP = 0.15, 3
HARMLESS_SHARE_PER_HOUR = 0.05
"""A growth that would not reach a twentieth of what is there in an hour is no leak that a shift would notice."""
T_95 = ((3, 3.18), (5, 2.57), (10, 2.23), (20, 2.09), (40, 2.02))
"""Student's t, two sides, 95 %: degrees of freedom from which on it is at most so much."""
CANVAS = "document.querySelector('.map-stage canvas').fleetMap"
DRAG = (
    f"(async () => {{ for (let n = 0; n < 40; n += 1) {{ {CANVAS}.pan(n % 20 < 10 ? 14 : -14, n % 4 < 2 ? 5 : -5);"
    f" if (n % 10 === 0) {CANVAS}.zoom(n % 20 ? 1.3 : 1 / 1.3); await new Promise(requestAnimationFrame) }} }})()"
)
PRESS_RANGE = "[...document.querySelectorAll('.segments button')].find(one => one.textContent === '%s')?.click()"
RESTING = "#/fleet"
INTRODUCTION = (
    "Written by `python -m tests.dashboards.soak ADDRESS --minutes 60 --page FILE` against a running demo. Headless",
    "Chromium goes round all pages about once a minute (map dragged and zoomed, charts of three ranges, live streams",
    "open); after each round, on the same page and after two garbage collections, what is alive is counted. The first",
    f"{round(WARM_UP_SHARE * 100)} % of the rounds are left out of the trend.", "",
)  # fmt: skip
OUTSIDE = """function() {
  return this.filter(one => { try { return !one.isConnected } catch { return false } }).length; // prototypes throw
}"""


@dataclass(frozen=True, slots=True)
class Look:
    """What is alive after a round and a collection."""

    minute: float
    heap_kib: float
    nodes: int
    detached: int
    listeners: int


@dataclass(frozen=True, slots=True)
class Slope:
    """A least-squares slope per hour with its standard error; ``flat`` is the verdict."""

    per_hour: float
    error: float
    median: float
    flat: bool


def slope(minutes: Sequence[float], values: Sequence[float]) -> Slope:
    """Trend of three or more readings: flat when zero lies in its 95 % interval, or where it is harmlessly small."""
    n = len(minutes)
    middle, mean = sum(minutes) / n, sum(values) / n
    spread = sum((one - middle) ** 2 for one in minutes)
    rise = sum((at - middle) * (one - mean) for at, one in zip(minutes, values, strict=True)) / spread
    rest = sum((one - mean - rise * (at - middle)) ** 2 for at, one in zip(minutes, values, strict=True))
    error = math.sqrt(rest / (n - 2) / spread)
    median = sorted(values)[n // 2]
    t = next(t for least, t in reversed(T_95) if n - 2 >= least) if n >= 5 else 12.7
    small = rise * 60 <= HARMLESS_SHARE_PER_HOUR * max(median, 1.0)
    return Slope(rise * 60, error * 60, median, rise - t * error <= 0 or small)


def verdict(looks: Sequence[Look]) -> dict[str, Slope]:
    """The slopes of everything counted, without the first looks, when caches and compiled code still fill."""
    kept = looks[max(LEAST_WARM_UP, round(len(looks) * WARM_UP_SHARE)) :]
    minutes = [look.minute for look in kept]
    return {name: slope(minutes, [float(getattr(look, name)) for look in kept]) for name in COUNTS}


def count(browser: Browser, minute: float) -> Look:
    """Collect what can be collected and count the rest."""
    for _ in range(2):
        browser.call("HeapProfiler.collectGarbage")
    counters = browser.call("Memory.getDOMCounters")
    heap = browser.call("Runtime.getHeapUsage")["usedSize"] / 1024
    prototype = browser.call("Runtime.evaluate", expression="Element.prototype", objectGroup="soak")["result"]
    found = browser.call("Runtime.queryObjects", prototypeObjectId=prototype["objectId"], objectGroup="soak")["objects"]
    told = browser.call(
        "Runtime.callFunctionOn", objectId=found["objectId"], returnByValue=True,
        functionDeclaration=OUTSIDE,
    )  # fmt: skip
    browser.call("Runtime.releaseObjectGroup", objectGroup="soak")
    return Look(
        round(minute, 2), round(heap, 1), counters["nodes"], told["result"]["value"], counters["jsEventListeners"]
    )


def go(browser: Browser, page: str, seen: str, rest_s: float) -> None:
    browser.ask(f"location.hash = {page!r}")
    browser.wait_for(seen)
    rest(browser, rest_s)


def rest(browser: Browser, seconds: float) -> None:
    browser.ask(f"new Promise(done => setTimeout(done, {round(seconds * 1000)}))")


def round_of_pages(browser: Browser, seconds: float) -> None:
    """One round; about ``seconds`` of looking, and what loading takes."""
    part = seconds / 10
    settled = "document.querySelector('main').innerText.length > 20 && !/Loading/.test(document.body.innerText)"
    rows = "document.querySelectorAll('table.fleet tbody tr').length > 0"
    whole = "document.querySelector('.map-tools button:last-child')"
    go(browser, "#/map", f"{whole} && ({whole}.click(), true)", 0.2)
    go(browser, "#/map", f"document.querySelector('.map-stage canvas') && {CANVAS}.groups.length > 0", part)
    browser.ask(DRAG)
    rest(browser, part)
    go(browser, RESTING, rows, part)
    asset = browser.ask("document.querySelector('table.fleet tbody a').getAttribute('href')")
    go(browser, asset, "document.querySelectorAll('canvas').length > 3", part)
    for name in ("30 min", "2 h", "5 min"):
        browser.ask(PRESS_RANGE % name)
        rest(browser, part)
    for page in ("#/alerts", "#/ledger", "#/questions", "#/crash"):
        go(browser, page, settled, part)
    go(browser, RESTING, rows, 0.5)


def soak(browser: Browser, address: str, minutes: float, round_s: float, told: Callable[[Look], None]) -> list[Look]:
    """Rounds until the time is over; what was counted after each."""
    browser.show(address)
    browser.wait_for("document.querySelectorAll('table.fleet tbody tr').length > 0")
    browser.call("HeapProfiler.enable")
    begun = time.monotonic()
    looks: list[Look] = []
    while not looks or time.monotonic() - begun < minutes * 60:
        round_of_pages(browser, round_s)
        looks.append(count(browser, (time.monotonic() - begun) / 60))
        told(looks[-1])
    return looks


def page_of(looks: Sequence[Look], slopes: dict[str, Slope], when: datetime) -> str:
    """The Markdown page of a soak."""
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine().items())
    rows = [
        f"| {COUNTS[name]} | {one.median:,.0f} | {one.per_hour:+,.1f} | {one.error:,.1f} |"
        f" {'flat' if one.flat else 'grows'} |"
        for name, one in slopes.items()
    ]
    each = [
        f"| {look.minute:.1f} | {look.heap_kib:,.0f} | {look.nodes:,} | {look.detached} | {look.listeners} |"
        for look in looks
    ]
    lines = [
        "# The console, soaked", "", *INTRODUCTION,
        f"{when:%Y-%m-%d %H:%M} UTC; {looks[-1].minute:.0f} minutes, {len(looks)} rounds; {facts}.", "",
        "| what | median | trend per hour | its standard error | verdict |", "|---|---|---|---|---|", *rows, "",
        "Flat: zero lies within the trend's 95 % interval, or an hour's growth stays below "
        f"{HARMLESS_SHARE_PER_HOUR:.0%} of the median.", "",
        "| minute | heap, KiB | nodes | detached | listeners |", "|---|---|---|---|---|", *each,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def say(look: Look) -> None:
    print(" ".join(f"{name}={value}" for name, value in asdict(look).items()), file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="what `fleetstream demo` prints, with the key")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--round", type=float, default=50.0, help="seconds of looking in one round")
    parser.add_argument("--page", type=Path, help="write the figures to this Markdown file")
    asked = parser.parse_args(arguments)
    program = find_browser()
    if program is None:
        print("no Chromium on PATH; install chromium", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch,
        open_browser(program, Path(scratch) / "profile") as browser,
    ):
        looks = soak(browser, asked.address, asked.minutes, asked.round, say)
        complaints = list(browser.complaints)
    if len(looks) < LEAST_WARM_UP + 3:
        print(f"only {len(looks)} rounds: too few for a trend; give it more --minutes", file=sys.stderr)
        return 2
    slopes = verdict(looks)
    if asked.page:
        asked.page.write_text(page_of(looks, slopes, datetime.now(UTC)), encoding="utf-8")
    flat = all(one.flat for one in slopes.values())
    print(json.dumps({
        "minutes": looks[-1].minute, "rounds": len(looks), "flat": flat, "complaints": complaints[:20],
        "slopes": {name: asdict(one) for name, one in slopes.items()},
    }))  # fmt: skip
    return 0 if flat else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
