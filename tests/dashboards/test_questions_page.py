"""The page of fleet questions in a real browser: an answer with units and ages, kept as CSV, asked again otherwise."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contracts.signals import catalogue
from tests.api.fix_api import Fleet, Server
from tests.dashboards.browser import Browser, find_browser

FUEL = catalogue().by_path("Vehicle.Powertrain.FuelSystem.RelativeLevel")
ROWS = "[...document.querySelectorAll('.answer tbody tr')]"

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium on PATH; install chromium to test the page")


def test_who_is_low_on_fuel(fleet: Fleet, server: Server, browser: Browser, pictures: Path) -> None:
    now = datetime.now(UTC)
    fleet.latest("north-1", FUEL.number, now - timedelta(minutes=5), 8.4)
    fleet.latest("north-2", FUEL.number, now - timedelta(days=3), 2.0)
    fleet.execute("UPDATE assets SET driver = '=HYPERLINK(1)' WHERE name = 'Car 1'")
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light")):
        browser.show("about:blank")
        browser.show(f"{server.base_url}/?{name}#key={fleet.key('north')}", width, 900, scheme)
        browser.wait_for("document.querySelector('table.fleet tbody tr') !== null")
        browser.ask("location.hash = '#/questions/low-fuel'")
        browser.wait_for(f"{ROWS}.length === 1")
        browser.photograph(pictures / f"questions-{name}.png")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    text = browser.ask("document.querySelector('.answer').innerText")
    assert "Car 1" in text and "8.40" in text and re.search(r"\b\d+ min\b", text) and "%" in text
    assert "3 vehicles asked about" in text and "1 never told it" in text and "1 told it too long ago" in text
    assert "cut to one decimal" in browser.ask("document.querySelector('.meaning').textContent")

    browser.ask(
        "void (saved = new Promise(told => { URL.createObjectURL = file => { file.text().then(told); return '#x' } }))"
    )
    browser.ask("document.querySelector('.answer-head button').click()")
    head, line, rest = browser.ask("saved").split("\r\n")
    assert head == "asset,driver,fuel_level [percent],measured_at,age_s [s]" and rest == ""
    assert line.startswith("Car 1,'=HYPERLINK(1),8.4,20"), "text that looks like a formula is none"

    browser.ask("document.getElementById('ask-max_age_s').value = '100'")
    browser.ask("document.querySelector('form.ask').requestSubmit()")
    browser.wait_for(f"{ROWS}.length === 2")
    browser.ask("document.getElementById('ask-threshold').value = '1'")
    browser.ask("document.querySelector('form.ask').requestSubmit()")
    browser.wait_for("document.querySelector('.answer').innerText.includes('No vehicle belongs into this answer')")
    assert "Not settled yet" not in browser.ask("document.querySelector('.answer').innerText")

    begin = (now - timedelta(hours=3)).replace(minute=0)
    browser.ask("location.hash = '#/questions/long-driving-sessions'")
    browser.wait_for("document.getElementById('ask-from') !== null")
    browser.ask(f"document.getElementById('ask-from').value = '{begin:%Y-%m-%dT%H:%M}'")
    browser.ask("document.querySelector('form.ask').requestSubmit()")
    browser.wait_for("document.querySelector('.answer').innerText.includes('Not settled yet: what came after')")
    assert browser.complaints == []
