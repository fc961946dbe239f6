"""The soak's arithmetic, and one short soak: a page that is left gives back what it took."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.fix_api import RPM, SPEED, Fleet, Server
from tests.dashboards.browser import Browser, find_browser
from tests.dashboards.soak import Look, count, page_of, slope, verdict

ROUNDS, LEAST_FREED = 6, 40


@given(st.floats(-50, 50), st.floats(0, 5), st.integers(0, 9))
def test_a_trend_larger_than_its_noise_is_seen(rise: float, noise: float, seed: int) -> None:
    dice = random.Random(seed)
    minutes = [float(n) for n in range(60)]
    told = slope(minutes, [1000 + rise * minute + dice.gauss(0, noise) for minute in minutes])
    assert abs(told.per_hour / 60 - rise) <= 5 * told.error / 60 + 1e-9
    if rise > 2 + noise:
        assert not told.flat
    if rise <= 0:
        assert told.flat or told.per_hour <= 5 * told.error


def test_the_page_of_a_soak_names_what_grows() -> None:
    looks = [Look(float(n), 1000.0 + 10 * n, 600, 0, 38) for n in range(30)]
    slopes = verdict(looks)
    assert not slopes["heap_kib"].flat and slopes["nodes"].flat and slopes["listeners"].flat
    page = page_of(looks, slopes, datetime(2026, 1, 1, tzinfo=UTC))
    assert "| JavaScript heap in use, KiB |" in page and "grows" in page and page.count("| flat |") == 3


@pytest.mark.skipif(find_browser() is None, reason="no Chromium on PATH; install chromium to test the page")
def test_pages_that_are_left_are_let_go(fleet: Fleet, server: Server, browser: Browser) -> None:
    now = datetime.now(UTC)
    for device in ("north-1", "north-2"):
        for signal in (SPEED, RPM):
            fleet.latest(device, signal.number, now - timedelta(seconds=3), 50.0)
    browser.show(f"{server.base_url}/#key={fleet.key('north')}")
    browser.wait_for("document.querySelectorAll('table.fleet tbody tr').length === 3")
    browser.call("HeapProfiler.enable")
    seen = {
        "#/map": "document.querySelector('.map-stage canvas')?.fleetMap.outlines",
        "#/asset/Car%201": "document.querySelectorAll('canvas').length === 2",
        "#/ledger": "document.querySelector('.tiles, .notice')",
        "#/fleet": "document.querySelectorAll('table.fleet tbody tr').length === 3",
    }
    looks: list[Look] = []
    for _ in range(ROUNDS):
        for page, there in seen.items():
            browser.ask(f"location.hash = {page!r}")
            browser.wait_for(f"!!({there})")
        looks.append(count(browser, float(len(looks))))
    first, last = looks[1], looks[-1]
    rounds = ROUNDS - 2
    assert last.listeners <= first.listeners + rounds - 1, looks
    assert last.nodes <= first.nodes + LEAST_FREED and last.detached <= LEAST_FREED, looks
