"""Done in a browser without reading docs: the car that stopped sending; which window was corrected, and why.

The other two journeys, a repaired dead letter and yesterday's export, are in ``test_letters_page.py``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.api.fix_api import SPEED, Fleet, Server
from tests.dashboards.browser import Browser, find_browser
from tests.dashboards.test_letters_page import click

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium on PATH; install chromium to test the page")
CORRECTED = "document.querySelector('.corrected:not([hidden])')"


def test_the_car_that_stopped_sending_is_found(fleet: Fleet, server: Server, browser: Browser) -> None:
    now = datetime.now(UTC)
    for device in ("north-1", "north-3"):
        fleet.latest(device, SPEED.number, now + timedelta(minutes=30), 50.0)  # no patience makes these two silent
    stopped = now - timedelta(hours=3)
    fleet.latest("north-2", SPEED.number, stopped, 61.0, received=stopped)
    browser.show(f"{server.base_url}/#key={fleet.key('north')}")
    click(browser, "Silent")
    browser.wait_for("document.querySelectorAll('table.fleet tbody tr').length === 1")
    assert "3 h" in browser.ask("document.querySelector('table.fleet tbody tr').innerText")
    click(browser, "Car 2")
    browser.wait_for("document.querySelector('.lead')?.innerText.includes('data 3 h old, measured')")
    assert f"{stopped:%d %b %Y, %H:%M}"[:11] in browser.ask("document.querySelector('.lead').innerText")
    browser.wait_for("document.querySelector('.read')?.innerText === 'no data in the last 5 min'")
    assert browser.complaints == []


def test_a_corrected_window_says_what_it_said_and_why(
    fleet: Fleet, server: Server, browser: Browser, pictures: Path
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    start = now.replace(second=now.second // 10 * 10) - timedelta(minutes=10)
    for window in range(12):
        fleet.window("north-1", SPEED.number, start + timedelta(seconds=10 * window), (5_000, 5_200, 5_400))
    fleet.latest("north-1", SPEED.number, now, 54.0)
    late = start + timedelta(minutes=7)
    corrected = start + timedelta(seconds=50)
    place = {
        "device_key": fleet.devices["north-1"], "signal": SPEED.number, "width_s": 10,
        "starts_at": corrected,
    }  # fmt: skip
    fleet.execute(
        "UPDATE window_aggregates SET late_minutes = %s, publications = 2 WHERE device_key = %s AND signal = %s"
        " AND width_s = %s AND starts_at = %s", [int(late.timestamp()) // 60], *place.values(),
    )  # fmt: skip
    fleet.insert("window_publications", {
        **place, "revision": 0, "publication": 1, "tenant_id": fleet.tenants["north"], "n": 2, "sum_units": 10_200,
        "sumsq_units": 52_040_000, "min_units": 5_000, "max_units": 5_200, "last_units": 5_200,
        "published_at": start + timedelta(seconds=65),
    })  # fmt: skip
    browser.show(f"{server.base_url}/#key={fleet.key('north')}")
    browser.wait_for("document.getElementById('bar')?.hidden === false")
    browser.ask("sessionStorage.setItem('zone', 'utc')")
    browser.show("about:blank")
    browser.show(f"{server.base_url}/?utc#/asset/Car%201")
    click(browser, "30 min")
    browser.wait_for(f"{CORRECTED}?.innerText.includes('1 window corrected by late data')")
    browser.ask(f"{CORRECTED}.querySelector('summary').click()")
    told = browser.ask(f"{CORRECTED}.innerText")
    assert f"{corrected:%H:%M:%S} to {corrected + timedelta(seconds=10):%H:%M:%S}" in told
    assert "first said 51.0 km/h from 2 samples" in told and "now 52.0 km/h from 3" in told
    assert f"packets arrived late, at {late:%H:%M}." in told
    browser.photograph(pictures / "corrected.png")
    assert browser.complaints == []
