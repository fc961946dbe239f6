"""The crash pages in a real browser: notices, records, the legal basis at the door, the report and its print."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.edr.wire import CapsuleParcel, event_of
from simulators.crashes.play import BUMPER, play
from simulators.crashes.scenarios import SCENARIOS
from tests.api.test_edr import Crashed, crashed
from tests.dashboards.browser import Browser, find_browser

__all__ = ["crashed"]

PROGRAM = find_browser()

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on PATH; install chromium to test the page")
FIGURES = "[...document.querySelectorAll('.figure')]"


def open_report(browser: Browser, crashed: Crashed, record: str) -> None:
    browser.show("about:blank")
    browser.show(f"{crashed.server.base_url}/?r={record[:6]}#/crash/{record}")
    browser.wait_for("document.querySelector('form.basis')")
    browser.ask(
        "(f => { f.basis.value = 'owner_consent'; f.reference.value = 'Einwilligung 12 ✔';"
        " f.purpose.value = 'claim 4711'; f.requestSubmit() })(document.querySelector('form.basis'))"
    )
    browser.wait_for(f"{FIGURES}.length >= 5")


def simulated(crashed: Crashed) -> str:
    """A whole simulated crash of the recorder's own making, stored as the device's."""
    played = play(SCENARIOS["haversine"], "part563-2024", 7, BUMPER)
    capsule, data = played.held[-1], played.sealed[-1].capsule
    with_sender = replace(crashed.recorder, recorder_id=capsule.head.place.recorder_id)
    parcel = CapsuleParcel(event_of(capsule), capsule.head.place.record_no, data)
    outcome = crashed.desk.take(with_sender, parcel)
    assert dict(outcome.counts) == {"stored": 1}, dict(outcome.reasons)
    return capsule.sha256.hex()


def test_crashes_and_a_report(crashed: Crashed, browser: Browser, pictures: Path) -> None:
    crashed.fleet.execute("UPDATE devices SET kind = 'simulated' WHERE device = 'north-1'")
    record = simulated(crashed)
    base = crashed.server.base_url
    browser.show(f"{base}/#key={crashed.fleet.key('north', 'admin')}")
    browser.wait_for("document.getElementById('link')?.textContent === 'Live'")
    second = crashed.recorder.capsule()
    crashed.desk.take(crashed.recorder, crashed.recorder.notice(second.event_id))
    browser.wait_for("document.getElementById('alarm').innerText.includes('Crash reported by Car 1')")
    browser.ask("document.querySelector('#alarm a').click()")
    browser.wait_for("document.querySelectorAll('section.panel')[2]?.hidden === false")
    browser.wait_for("document.querySelectorAll('tbody tr').length >= 6")
    browser.ask("[...document.querySelectorAll('button')].filter(b => b.textContent === 'Where?').at(-1).click()")
    browser.wait_for("document.body.innerText.includes('49.01170, 8.40000 (0.4 s old)')")
    browser.photograph(pictures / "crashes.png")
    open_report(browser, crashed, record)
    text = browser.ask("document.body.innerText")
    assert "not the regulated download" in text and "worth nothing as evidence" in text and "±" in text
    titles = browser.ask(
        f"{FIGURES}.map(f => f.querySelector('b').textContent + (f.querySelector('svg') ? '' : ' absent'))"
    )
    assert {"Speed", "Accelerator", "Service brake", "Steering", "Delta-V"} <= {
        one.split(" absent")[0] for one in titles
    }
    assert browser.ask("document.querySelector('svg.plot').getAttribute('aria-label')").startswith("Speed. ")
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tall(browser, pictures / f"report-{scheme}.png")
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.ask("getComputedStyle(document.getElementById('bar')).display") == "none"
    assert browser.ask("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    printed = browser.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]
    (pictures / "report.pdf").write_bytes(base64.b64decode(printed))
    tall(browser, pictures / "report-print.png", 794)
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=False)
    wide = (
        "[...document.querySelectorAll('body *')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, nav'))"
    )
    assert browser.ask(f"{wide}.map(e => e.tagName + '.' + e.className)") == []
    assert browser.complaints == []
    bases = crashed.desk.rows("SELECT basis, reference, outcome FROM evidence_custody WHERE action = 'report'")
    assert bases == [("owner_consent", "Einwilligung 12 ✔", "allowed")]


def test_an_insurer_without_a_basis_reads_nothing(crashed: Crashed, browser: Browser) -> None:
    browser.show(f"{crashed.server.base_url}/#key={crashed.fleet.key('north', 'insurer')}")
    browser.wait_for("document.getElementById('bar')?.hidden === false")
    browser.ask("location.hash = '#/crash'")
    browser.wait_for("document.body.innerText.includes('role insurer may not')")
    browser.ask(f"location.hash = '#/crash/{crashed.record}'")
    browser.wait_for("document.querySelector('form.basis')")
    browser.ask(
        "(f => { f.basis.value = 'emergency'; f.purpose.value = 'x'; f.requestSubmit() })"
        "(document.querySelector('form.basis'))"
    )
    browser.wait_for("document.querySelector('.form-error').textContent.includes('facilitates no medical response')")
    assert browser.ask("document.querySelectorAll('.figure').length") == 0


def tall(browser: Browser, file: Path, width: int = 1280) -> None:
    """A photograph of the whole page."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    height = browser.ask("document.documentElement.scrollHeight")
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    browser.photograph(file)
