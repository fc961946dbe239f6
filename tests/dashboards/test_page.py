"""The page in a real browser, on a real server and store; skipped where there is no Chromium.

``FLEETSTREAM_SCREENSHOTS=folder`` keeps the photographs, to be looked at.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contracts.packet import Quality
from contracts.signals import catalogue
from infra.enrol import Enrolment
from tests.api.fix_api import AHEAD, RPM, SPEED, Fleet, Server
from tests.dashboards.browser import Browser, find_browser

COOLANT = catalogue().by_path("Vehicle.Powertrain.CombustionEngine.EngineCoolant.Temperature")
MOVING = catalogue().by_path("Vehicle.IsMoving")
POWER = catalogue().by_path("WindTurbine.WTUR.W")
ROWS = "[...document.querySelectorAll('table.fleet tbody tr')]"
PROGRAM = find_browser()

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on PATH; install chromium to test the page")


def drive(fleet: Fleet, device: str, now: datetime, seed: int) -> None:
    """Five minutes of readings with a gap of one, and windows of half an hour."""
    dice = random.Random(seed)
    for second in range(0, 300, 5):
        if 100 <= second < 160:
            continue
        at = now - timedelta(seconds=300 - second)
        samples = []
        for k in range(5):
            speed = 60 + 30 * math.sin((second + k) / 25) + dice.random()
            samples += [(SPEED.number, k * 1000, round(speed, 2), 0), (RPM.number, k * 1000, round(speed * 28), 0)]
            samples += [(COOLANT.number, k * 1000, 88 + round(dice.random(), 1), 0), (MOVING.number, k * 1000, 1.0, 0)]
        fleet.packet(device, at, samples)
    start = now.replace(second=now.second // 10 * 10, microsecond=0) - timedelta(minutes=30)
    for window in range(180):
        if not 60 <= window < 80:
            middle = 6000 + 2500 * math.sin(window / 9)
            fleet.window(
                device, SPEED.number, start + timedelta(seconds=10 * window),
                [round(middle + dice.uniform(-500, 500)) for _ in range(10)],
            )  # fmt: skip


@pytest.fixture
def busy(fleet: Fleet) -> Fleet:
    """Each state of data once, values good and bad, a ledger with something under way."""
    now = datetime.now(UTC)
    fleet.enrol(
        *(Enrolment(f"north-{n}", "north", f"Van {n:02d}", "car") for n in range(10, 24)),
        Enrolment("north-t1", "north", "Hill 1", "turbine"),
        Enrolment("north-r1", "north", "2024-03-01 kit drive", "car", kind="recording"),
    )
    drive(fleet, "north-1", now, 1)
    for n in range(10, 24):
        fleet.latest(f"north-{n}", SPEED.number, now, 20.0 + n)
        fleet.latest(f"north-{n}", RPM.number, now, 900.0 + 37 * n)
    for signal, value in ((SPEED, 57.41), (RPM, 1608.0), (COOLANT, 88.4), (MOVING, 1.0)):
        fleet.latest("north-1", signal.number, now, value)
    fleet.latest("north-2", SPEED.number, now - timedelta(hours=3), 0.0, received=now)
    fleet.latest("north-10", SPEED.number, now - timedelta(seconds=40), 33.0)
    fleet.latest("north-10", RPM.number, now - timedelta(seconds=40), 33.0)
    fleet.latest("north-11", SPEED.number, now - timedelta(days=2), 61.0)
    fleet.latest("north-11", RPM.number, now - timedelta(days=2), 61.0)
    fleet.latest("north-12", COOLANT.number, now, float("nan"), Quality.NOT_FINITE)
    fleet.latest("north-t1", POWER.number, now, 1_842.0)
    fleet.latest("north-r1", SPEED.number, now - timedelta(days=600), 44.0)
    for number, device in enumerate(("north-1", "north-2", "north-10", "north-t1")):
        key, tenant = fleet.devices[device], fleet.tenants["north"]
        fleet.execute(
            "INSERT INTO seen_ranges VALUES (%s, 1, 7, %s, %s, 1900, 38000, %s)", key, tenant,
            "{[1,1901)}" if number else "{[1,1800),[1805,1905)}", number,
        )  # fmt: skip
        fleet.execute(
            "INSERT INTO agent_status VALUES (%s, 1, 7, %s, %s, 0, now(), '{\"accepted_samples\": 38000,"
            ' "oldest_unacked_ms": 900}\')', key, tenant, 1905 if number == 0 else 1901,
        )  # fmt: skip
    key, tenant = fleet.devices["north-1"], fleet.tenants["north"]
    fleet.execute(
        "UPDATE agent_status SET account = account || '{\"held\": [[1, 1800, 1801]], \"not_accepted_samples\": 0}'"
        " WHERE device_key = %s", key,
    )  # fmt: skip
    fleet.execute(
        "INSERT INTO ledger_gaps (device_key, boot_epoch, tenant_id, numbers, missing, since, opened_at)"
        " VALUES (%s, 1, %s, '{[1800,1805)}', '{[1800,1805)}', now() - interval '20 min', now())", key, tenant,
    )  # fmt: skip
    fleet.execute("INSERT INTO agent_gaps VALUES (%s, 1, 3, 9, %s, 1, 0, 7, 70, 20, now())", key, tenant)
    return fleet


def test_the_fleet_live_with_state_in_words_and_no_zero_for_nothing(
    busy: Fleet, server: Server, browser: Browser, pictures: Path
) -> None:
    key = busy.key("north")
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light")):
        browser.show("about:blank")
        browser.show(f"{server.base_url}/?{name}#key={key}", width, 900, scheme)
        browser.wait_for(f"{ROWS}.length >= 18")
        browser.wait_for("document.getElementById('link')?.textContent === 'Live'")
        browser.photograph(pictures / f"fleet-{name}.png")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    assert "fsk_" not in browser.ask("location.href")
    browser.show(f"{server.base_url}/?again#/fleet")
    browser.wait_for(f"{ROWS}.length >= 18")
    texts = browser.ask(f"Object.fromEntries({ROWS}.map(r => [r.querySelector('a').textContent, r.innerText]))")
    states = {name: text.split()[0] for name, text in texts.items()}
    assert states["Car 3"] == "No" and texts["Car 3"].count("–") == 5 and "0" not in texts["Car 3"]
    assert states["2024-03-01 kit drive"] == "Recording"
    assert "1\u202f842" in texts["Hill 1"] and "kW" in texts["Hill 1"]
    now = datetime.now(UTC)
    busy.latest("north-2", SPEED.number, now - timedelta(hours=2), 5.0, received=now + AHEAD)
    browser.wait_for(f"{ROWS}.some(r => r.innerText.includes('Car 2') && r.innerText.includes('Catching up'))")
    busy.latest("north-3", SPEED.number, datetime.now(UTC) + AHEAD, 77.5)
    browser.wait_for(f"{ROWS}.some(r => r.innerText.includes('77.5') && r.innerText.includes('Live'))")
    assert browser.complaints == []


def test_search_and_state_filter_by_keyboard(busy: Fleet, server: Server, browser: Browser) -> None:
    browser.show(f"{server.base_url}/#key={busy.key('north')}")
    browser.wait_for(f"{ROWS}.length >= 18")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="/", text="/" if kind == "keyDown" else "")
    browser.wait_for("document.activeElement?.type === 'search'")
    browser.call("Input.insertText", text="car 2")
    browser.wait_for(f"{ROWS}.length === 1")
    browser.ask("(f => { f.value = ''; f.dispatchEvent(new Event('input')) })(document.querySelector('input'))")
    browser.ask("document.querySelector('.chip[data-state=no_data]').click()")
    browser.wait_for(f"{ROWS}.length === 1 && {ROWS}[0].innerText.includes('Car 3')")
    assert browser.complaints == []


def test_one_asset_s_charts(busy: Fleet, server: Server, browser: Browser, pictures: Path) -> None:
    browser.show(f"{server.base_url}/#key={busy.key('north')}")
    browser.wait_for(f"{ROWS}.length >= 18")
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "dark")):
        browser.show("about:blank")
        browser.show(f"{server.base_url}/?{name}#/asset/Car%201", width, 900, scheme)
        browser.wait_for("[...document.querySelectorAll('canvas')].length === 4")
        browser.wait_for("document.querySelector('canvas')?.getAttribute('aria-label')?.includes('from')")
        browser.photograph(pictures / f"asset-{name}.png")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    browser.ask("[...document.querySelectorAll('.segments button')].find(b => b.textContent === '30 min').click()")
    browser.wait_for("document.querySelector('canvas')?.getAttribute('aria-label')?.includes('last 30 min: from')")
    browser.ask("document.querySelector('canvas').focus()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", windowsVirtualKeyCode=37)
    browser.wait_for("/samples/.test(document.querySelector('.read').textContent)")
    browser.photograph(pictures / "asset-windows.png")
    busy.latest("north-1", SPEED.number, datetime.now(UTC), 12.5)
    browser.wait_for("document.querySelector('.now').textContent.startsWith('12.5')")
    assert "UTC" in browser.ask("document.querySelector('.how').textContent")
    assert browser.complaints == []


def test_the_ledger(busy: Fleet, server: Server, browser: Browser, pictures: Path) -> None:
    browser.show(f"{server.base_url}/#key={busy.key('north')}")
    browser.wait_for(f"{ROWS}.length >= 18")
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light")):
        browser.show("about:blank")
        browser.show(f"{server.base_url}/?{name}#/ledger", width, 900, scheme)
        browser.wait_for("document.querySelectorAll('.ledger tbody tr').length === 4")
        browser.photograph(pictures / f"ledger-{name}.png")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    verdict = browser.ask("document.querySelector('.verdict').textContent")
    assert "5 packets are under way" in verdict and "1 gap is older than the limit" in verdict
    rows = browser.ask("[...document.querySelectorAll('.ledger tbody tr')].map((row) => row.innerText.split('\\t'))")
    assert [row[3].strip() for row in rows if row[0].strip() == "north-1"] == ["1\u202f902"]
    assert {row[3].strip() for row in rows if row[0].strip() != "north-1"} == {"–"}, "nobody said: a dash, not zero"
    page = browser.ask("document.querySelector('main, body').innerText")
    assert "1800–1804" in page and "its buffer was full" in page
    assert browser.complaints == []


def test_the_door(fleet: Fleet, server: Server, browser: Browser, pictures: Path) -> None:
    browser.show(server.base_url)
    browser.wait_for("document.activeElement?.id === 'key'")
    browser.photograph(pictures / "door.png")
    browser.call("Input.insertText", text="fsk_0123456789abcdef_wrong")
    browser.ask("document.querySelector('form').requestSubmit()")
    browser.wait_for("document.querySelector('.form-error').textContent.includes('not an API key')")
    browser.ask("document.getElementById('key').value = ''")
    browser.call("Input.insertText", text=fleet.key("south"))
    browser.ask("document.querySelector('form').requestSubmit()")
    browser.wait_for(f"{ROWS}.length === 1 && {ROWS}[0].innerText.includes('Turbine 1')")
    assert browser.ask("document.getElementById('tenant').textContent") == "south"
    browser.ask("document.getElementById('out').click()")
    browser.wait_for("document.activeElement?.id === 'key'")
    assert browser.ask("sessionStorage.getItem('fleetstream.key')") is None
