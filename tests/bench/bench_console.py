"""The map with ten thousand assets in a headless browser, and the answers it is made of.

A pan frame's cost is all the work of the page's main thread (script, layout, paint) over a drag, divided by its frames.
The browser draws without a graphics card, on the cores that also run the database and the API.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from contracts.tables import ROLE_API, ROLE_SINK
from infra.backends import make_postgres
from infra.enrol import Enrolment
from infra.migrate import create_roles, maintain, migrate
from infra.postgres import SUPERUSER
from infra.processes import Child, free_port, wait_ready
from tests.api.fix_api import Fleet, Server, api_settings, running
from tests.bench.figures import Figure, Report
from tests.dashboards.browser import Browser, find_browser, open_browser

ASSETS, SIGNALS = 10_000, 20
ROUNDS, FRAMES, CALLS = 5, 60, 20
MAP = "document.querySelector('.map-stage canvas').fleetMap"
DRAG = f"""(async () => {{
  const map = {MAP};
  for (let n = 0; n < {FRAMES}; n += 1) {{
    map.pan(n % 20 < 10 ? 14 : -14, 5);
    await new Promise(requestAnimationFrame);
  }}
}})()"""
FILL = """
INSERT INTO latest_values
SELECT d.device_key, s.signal, d.tenant_id, (extract(epoch FROM now()) * 1000)::bigint, 1, 1, 0,
       CASE s.signal WHEN 4 THEN 36 + random() * 22 WHEN 5 THEN -8 + random() * 32 ELSE random() * 100 END, 0, now()
FROM devices d CROSS JOIN (SELECT signal FROM signals ORDER BY signal LIMIT %s) s
"""


def run() -> Report:
    report = Report("Console: the map with ten thousand assets")
    size = f"{ASSETS:,} assets, {SIGNALS} signals each"
    with _fleet() as (fleet, server):
        key = fleet.key("north")
        for path, target in (("/api/v1/positions", 500.0), ("/api/v1/assets?limit=10000", 500.0)):
            times = _times_ms(server, key, path)
            name = path.partition("?")[0].removeprefix("/api/v1")
            report.figures.append(Figure(f"answer {name}", "ms", times, target, False, f"{size}, over HTTP"))
        program = find_browser()
        if program is None:
            report.notes.append("No Chromium on this machine: the page itself was not measured.")
            return report
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
            open_browser(program, Path(profile)) as browser,
        ):
            first, shown = zip(*(_open(browser, server, key, n) for n in range(ROUNDS)), strict=True)
            report.figures += [
                Figure("first paint of the map", "ms", first, 2_000, False, f"{size}; 1280 x 800, page reloaded"),
                Figure("all assets on the map", "ms", shown, None, False, f"{size}; from the same start"),
                Figure("pan frame, main thread", "ms", tuple(_pan_ms(browser) for _ in range(ROUNDS)), 8, False,
                       f"{size}; mean of {FRAMES} frames of a drag, software drawing"),
                Figure("pan frame, script", "ms", tuple(_script_ms(browser) for _ in range(ROUNDS)), 8, False,
                       f"{size}; median of a drag's frames"),
            ]  # fmt: skip
    return report


def _times_ms(server: Server, key: str, path: str) -> tuple[float, ...]:
    times = []
    with server.client(key) as client:
        client.get(path)
        for _ in range(CALLS):
            begun = time.perf_counter()
            answer = client.get(path)
            times.append((time.perf_counter() - begun) * 1_000)
            if len(answer.raise_for_status().content) <= ASSETS:
                raise RuntimeError(f"{path} told less than there is")
    return tuple(times)


def _open(browser: Browser, server: Server, key: str, n: int) -> tuple[float, float]:
    browser.show("about:blank")
    browser.show(f"{server.base_url}/?{n}#key={key}")
    browser.wait_for("document.getElementById('tenant')?.textContent === 'north'")
    browser.show("about:blank")
    begun = time.perf_counter()
    browser.show(f"{server.base_url}/?map{n}#/map")
    browser.wait_for(f"document.querySelector('.map-stage canvas') && {MAP}.groups.length > 0 && {MAP}.outlines")
    shown = (time.perf_counter() - begun) * 1_000
    first = browser.ask("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return float(first), shown


def _pan_ms(browser: Browser) -> float:
    browser.call("Performance.enable")
    before = _busy_s(browser)
    browser.ask(DRAG)
    return (_busy_s(browser) - before) * 1_000 / FRAMES


def _script_ms(browser: Browser) -> float:
    browser.ask(f"{MAP}.frames.length = 0")
    browser.ask(DRAG)
    frames: list[float] = json.loads(browser.ask(f"JSON.stringify({MAP}.frames)"))
    return statistics.median(frames)


def _busy_s(browser: Browser) -> float:
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


@contextmanager
def _fleet() -> Iterator[tuple[Fleet, Server]]:
    with empty_store() as fleet:
        fleet.enrol(*(Enrolment(f"north-{n}", "north", f"Van {n:05d}", "car") for n in range(ASSETS)))
        with psycopg.connect(fleet.dsn, autocommit=True) as connection:
            connection.execute(FILL, (SIGNALS,))
            connection.execute("VACUUM ANALYZE")
        with running(api_settings(fleet, rate_per_s=1_000, rate_burst=10_000)) as server:
            yield fleet, server


@contextmanager
def empty_store() -> Iterator[Fleet]:
    """A database of its own with our schema and nobody in it."""
    home = Path(tempfile.mkdtemp(prefix="fleetstream-bench-"))
    postgres = make_postgres(home, free_port())
    postgres.prepare()
    child = Child(postgres.command())
    try:
        wait_ready(child, postgres.ready, 60.0)
        postgres.create_database()
        create_roles(postgres.dsn(), postgres.passwords())
        migrate(postgres.dsn(), "bench")
        maintain(postgres.dsn(), "bench")
        roles = (SUPERUSER, ROLE_API, ROLE_SINK)
        dsn, api, sink = (make_conninfo(postgres.dsn(role), options="-csearch_path=bench") for role in roles)
        yield Fleet(dsn, api, sink)
    finally:
        child.stop()
        shutil.rmtree(home, ignore_errors=True)
