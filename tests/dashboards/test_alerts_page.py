"""A technician who has read nothing: from an alert to its cause, taken notice of, resolved as false, and counted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.api.fix_alerts import COOLANT, Watchroom
from tests.api.fix_api import Fleet, Server
from tests.dashboards.browser import Browser, find_browser

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on PATH; install chromium to test the page")
BODY = "document.body.innerText"
THROTTLE = 25


def press(browser: Browser, words: str) -> None:
    button = f"[...document.querySelectorAll('button, a')].find(one => one.textContent === {words!r})"
    browser.wait_for(button + " !== undefined")
    browser.ask(f"{button}.click()")


@pytest.fixture
def room(fleet: Fleet) -> Watchroom:
    """A car whose coolant is too hot, beside a healthy one; three things at once on another car; one case of before."""
    made = Watchroom(fleet)
    made.find("north-3", begun_s=-86_400)
    made.work()
    fleet.execute(
        "UPDATE alert_rows SET state = 'resolved', resolution = 'true', resolved_at = now(), event_no = event_no + 1,"
        " change_kind = 'moved', changed_by = 'key:k', change_note = 'thermostat replaced'"
    )
    name = made.find(severity=3, last_at=made.begun + timedelta(minutes=9), signals=[COOLANT.number, THROTTLE])
    fleet.execute(
        "INSERT INTO finding_corrections (finding_id, revision, tenant_id, kind, reason, before) SELECT finding_id, 1,"
        " tenant_id, 'amended', 'readings that came late changed what it says', jsonb_build_object('opened_at',"
        " opened_at, 'closed_at', closed_at, 'observed', observed) FROM finding_rows WHERE finding_id = %s", name,
    )  # fmt: skip
    for cause in ("fuel", "load", "speed"):
        made.find("north-2", cause=cause, begun_s=60)
    for minute in range(-9, 18):
        at = made.begun + timedelta(minutes=minute)
        hot = 1185 if 0 <= minute < 9 else 905 + minute
        for second in range(0, 60, 10):
            fleet.window("north-1", COOLANT.number, at + timedelta(seconds=second), (hot - 12, hot))
            fleet.window("north-1", THROTTLE, at + timedelta(seconds=second), (280, 310))
        fleet.window("north-2", COOLANT.number, at, (880, 890))
    made.work()
    return made


def test_from_an_alert_to_its_cause_resolved_as_false_and_counted(
    room: Watchroom, server: Server, browser: Browser, pictures: Path
) -> None:
    browser.show(f"{server.base_url}/#key={room.fleet.key('north', 'maintenance')}")
    browser.wait_for("document.getElementById('bar')?.hidden === false")
    press(browser, "Alerts")
    browser.wait_for(f"{BODY}.includes('Car 1: Cooling')")
    rows = browser.ask("[...document.querySelectorAll('.alerts tbody tr')].map(row => row.innerText)")
    assert len(rows) == 2 and "Alarm" in rows[0], "the gravest first, and the storm as one"
    assert "+ 2" in rows[1]
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "dark")):
        browser.show(f"{server.base_url}/?{name}#/alerts", width, 900, scheme)
        browser.wait_for("document.querySelectorAll('.alerts tbody tr').length === 2")
        browser.photograph(pictures / f"alerts-{name}.png")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    browser.show(f"{server.base_url}/?again#/alerts")
    press(browser, "Car 1: Cooling")
    browser.wait_for("document.querySelector('canvas')?.getAttribute('aria-label')?.includes('expected 84.0 to 96.0')")
    page = browser.ask(BODY)
    for words in (
        "118.5 °C seen, 84.0 to 96.0 °C expected", "Look at the coolant's level.",
        "Meanwhile on 1 other asset of its kind", "thermostat replaced", "right in 1 of 1 judged alert",
        "in the same time", "What late readings changed", "readings that came late changed what it says",
    ):  # fmt: skip
        assert words in page
    drawn = browser.ask("[...document.querySelectorAll('canvas')].map(one => one.getAttribute('aria-label'))")
    assert len(drawn) == 2 and "in the same time" in drawn[1], "every signal that the detector looked at"
    whole = room.rows("SELECT alert_id FROM alert_rows WHERE severity = 3")[0][0]
    for name, width, scheme in (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light")):
        browser.show(f"{server.base_url}/?one-{name}#/alerts/{whole}", width, 1_000, scheme)
        browser.wait_for("document.querySelectorAll('.step').length === 7")
        browser.photograph(pictures / f"alert-{name}.png")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    press(browser, "Acknowledge")
    browser.wait_for("document.querySelector('.standing').textContent === 'Acknowledged'")
    press(browser, "Assign to me")
    browser.wait_for("document.activeElement.id === 'actor'")
    browser.call("Input.insertText", text="Ada")
    press(browser, "Assign to me")
    browser.wait_for("document.querySelector('.standing').textContent === 'Assigned, with Ada'")
    browser.ask("document.getElementById('note').focus()")
    browser.call("Input.insertText", text="the sensor's plug was wet")
    press(browser, "Resolve: false alarm")
    browser.wait_for(f"{BODY}.includes('the detector was wrong') && {BODY}.includes(\"the sensor's plug was wet\")")
    browser.photograph(pictures / "alert-resolved.png")
    browser.ask("document.querySelector('.crumb a').click()")
    browser.wait_for("document.querySelectorAll('.alerts tbody tr').length === 1")
    browser.wait_for("document.querySelector('.precision tbody tr')?.innerText.includes('50 %')")
    cells = browser.ask("document.querySelector('.precision tbody tr').innerText.split('\\t')")
    assert [cell.strip() for cell in cells][2:] == ["5", "1", "1", "0", "3", "50 %"]
    browser.photograph(pictures / "precision.png")
    steps = room.rows(
        "SELECT to_state, by_whom ~ '/Ada$' FROM alert_events WHERE alert_id = %s ORDER BY event_no", whole
    )
    assert steps == [("new", False), ("acknowledged", False), ("assigned", True), ("resolved", True)]
    assert browser.complaints == []
