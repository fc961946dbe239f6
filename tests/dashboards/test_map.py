"""The map in a real browser: where assets are, what is silent, by mouse, by keyboard and in words."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contracts.signals import catalogue
from dashboards.outlines import outlines, thin
from infra.enrol import Enrolment
from tests.api.fix_api import AHEAD, SPEED, Fleet, Server
from tests.dashboards.browser import Browser, find_browser

LATITUDE, LONGITUDE, HEADING = (
    catalogue().by_path(f"Vehicle.CurrentLocation.{name}").number for name in ("Latitude", "Longitude", "Heading")
)
PROGRAM = find_browser()
MAP = "document.querySelector('.map-stage canvas').fleetMap"
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on PATH; install chromium to test the page")


@pytest.fixture
def placed(fleet: Fleet) -> Fleet:
    """Vans in three towns, one silent, a trail behind one, a wind farm, one asset that never told a position."""
    now = datetime.now(UTC)
    dice = random.Random(7)
    towns = ((52.52, 13.40), (48.14, 11.58), (53.55, 9.99))
    fleet.enrol(*(Enrolment(f"north-v{n}", "north", f"Van {n:02d}", "car") for n in range(40)))
    fleet.enrol(Enrolment("north-t1", "north", "Hill 1", "turbine", place=(54.4, 9.1)))
    for n in range(40):
        latitude, longitude = towns[n % 3]
        at = now - timedelta(hours=2) if n == 5 else now + AHEAD
        spread = 0.15 * math.sqrt(dice.random())
        fleet.latest(f"north-v{n}", LATITUDE, at, latitude + spread * dice.uniform(-1, 1))
        fleet.latest(f"north-v{n}", LONGITUDE, at, longitude + spread * dice.uniform(-1, 1))
        fleet.latest(f"north-v{n}", SPEED.number, at, 30.0 + n)
    for second in range(0, 300, 10):
        samples = [
            (LATITUDE, 0, round(52.52 + second * 4e-5, 7), 0),
            (LONGITUDE, 0, round(13.40 + 0.01 * math.sin(second / 60), 7), 0),
        ]
        fleet.packet("north-1", now - timedelta(seconds=300 - second), samples)
    fleet.latest("north-1", LATITUDE, now + AHEAD, 52.532)
    fleet.latest("north-1", LONGITUDE, now + AHEAD, 13.3904)
    return fleet


@needs_browser
def test_the_fleet_on_the_map(placed: Fleet, server: Server, browser: Browser, pictures: Path) -> None:
    browser.show(f"{server.base_url}/#key={placed.key('north')}")
    browser.wait_for("document.querySelectorAll('table.fleet tbody tr').length >= 40")
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light")):
        browser.show("about:blank")
        browser.show(f"{server.base_url}/?{name}#/map", width, 900, scheme)
        browser.wait_for("document.querySelector('.map-side .lead')?.textContent.includes('42 of 44 assets in view')")
        browser.wait_for(f"{MAP}.outlines && {MAP}.drawn")
        browser.photograph(pictures / f"map-{name}.png")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    first = browser.ask("document.querySelector('.map-list button').textContent")
    assert first.startswith("Van 05") and "h" in first, "what is silent comes first"
    assert browser.ask("document.querySelector('.map-side .lead').textContent").endswith("2 without a position")
    browser.ask("document.querySelector('.map-side .chip[data-state=silent]').click()")
    browser.wait_for("document.querySelectorAll('.map-list button').length === 1")
    browser.ask("document.querySelector('.map-list button').click()")
    browser.wait_for("document.querySelector('.map-card h2')?.textContent === 'Van 05'")
    assert "Silent" in browser.ask("document.querySelector('.map-card').innerText")
    assert browser.complaints == []


@needs_browser
def test_one_asset_its_trail_and_the_keys(placed: Fleet, server: Server, browser: Browser, pictures: Path) -> None:
    browser.show(f"{server.base_url}/#key={placed.key('north')}")
    browser.wait_for("document.querySelectorAll('table.fleet tbody tr').length >= 40")
    browser.show("about:blank")
    browser.show(f"{server.base_url}/?m#/map", 1280, 900)
    browser.wait_for("document.querySelectorAll('.map-list button').length > 40")
    browser.ask("[...document.querySelectorAll('.map-list button')].find(b => b.dataset.name === 'Car 1').click()")
    browser.wait_for(f"{MAP}.trail?.[0]?.length === 30")
    browser.photograph(pictures / "map-trail.png")
    assert browser.ask("document.querySelector('.map-card a').getAttribute('href')") == "#/asset/Car%201"
    before = browser.ask(f"{MAP}.view")
    browser.ask("document.querySelector('.map-stage canvas').focus()")
    for key, code in (("ArrowRight", 39), ("-", 189)):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code)
    browser.wait_for(f"{MAP}.view.x > {before['x']} && {MAP}.view.k < {before['k']}")
    placed.latest("north-1", LATITUDE, datetime.now(UTC) + AHEAD, 52.6)
    browser.wait_for("document.querySelector('.map-card').innerText.includes('52.60000°')")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", windowsVirtualKeyCode=27)
    browser.wait_for("document.querySelector('.map-card').hidden")
    assert browser.complaints == []


def test_outlines_are_thinned_within_the_tolerance() -> None:
    wave = [(n, round(10 * math.sin(n / 5))) for n in range(200)]
    kept = thin(wave, 1.5)
    assert kept[0] == wave[0] and kept[-1] == wave[-1] and len(kept) < 80
    for x, y in wave:
        after = next(n for n, point in enumerate(kept) if point[0] >= x)
        (ax, ay), (bx, by) = kept[max(0, after - 1)], kept[after]
        between = ay if ax == bx else ay + (by - ay) * (x - ax) / (bx - ax)
        assert abs(between - y) <= 1.5 * math.hypot(1, (by - ay) / max(1, bx - ax)) + 1e-9


def test_outlines_of_two_neighbours_share_a_border() -> None:
    square = {"scale": [0.01, 0.01], "translate": [0, 0]}
    arcs = [
        [[0, 0], [0, 1000]],
        [[0, 1000], [-1000, 0], [0, -1000], [1000, 0]],
        [[0, 0], [1000, 0], [0, 1000], [-1000, 0]],
    ]
    west = {"type": "Polygon", "arcs": [[0, 1]]}
    east = {"type": "MultiPolygon", "arcs": [[[2, -1]]]}
    made = outlines({"transform": square, "arcs": arcs, "objects": {"countries": {"geometries": [west, east]}}})
    assert made["borders"] == [0] and made["arcs"][0] == [0, 0, 0, 1000] and made["land"] == [[0, 1], [2, -1]]
