"""Done in a browser without reading docs: a repaired dead letter sent again, yesterday of one asset exported."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.api.fix_api import RPM, SPEED, Fleet, Server
from tests.api.fix_letters import Post, post
from tests.dashboards.browser import Browser, find_browser
from tests.walk.history import wait_for

__all__ = ["post"]

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on PATH; install chromium to test the page")
YEAR = timedelta(days=365)
WIDE = (
    "[...document.querySelectorAll('body *')]"
    ".filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, nav, pre'))"
    ".map(e => e.tagName + '.' + e.className)"
)


def click(browser: Browser, words: str) -> None:
    """As a person would: what says these words."""
    found = f"[...document.querySelectorAll('a, button, label')].find(e => e.innerText.trim().startsWith({words!r}))"
    browser.wait_for(f"!!{found}")
    browser.ask(f"{found}.click()")


def test_a_repaired_dead_letter_is_sent_again(
    fleet: Fleet, server: Server, post: Post, browser: Browser, pictures: Path
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    post.refuse(post.frame(now - timedelta(minutes=4) + YEAR, 7, 4_200, 4_300), now, "future", seq=7)
    post.refuse(b"no packet at all", now - timedelta(hours=1), "not_a_packet")
    browser.show(f"{server.base_url}/#key={fleet.key('north', 'admin')}")
    browser.wait_for("document.getElementById('bar')?.hidden === false")
    click(browser, "Ledger")
    click(browser, "Look into them")
    browser.wait_for("document.querySelectorAll('.letters tbody tr').length === 2")
    assert "future" in browser.ask("document.querySelector('.letters tbody tr').innerText")
    browser.photograph(pictures / "letters.png")
    browser.ask("document.querySelector('.letters tbody a').click()")
    browser.wait_for("document.querySelector('.repair input[value=received]')?.checked")
    text = browser.ask("document.body.innerText")
    assert "42.0 km/h" in text and "365 d earlier" in text and "ahead of now" in text
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 360)):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", **size)
        browser.photograph(pictures / f"letter-{scheme}-{width}.png")
        assert browser.ask(WIDE) == []
    click(browser, "Send again")
    browser.wait_for("document.body.innerText.includes('On its way')")
    assert post.carry() == 1
    browser.wait_for("document.querySelector('.outcome.good')?.innerText.includes('Stored')")
    assert post.rows("SELECT seq, value FROM readings ORDER BY value") == [(7, 42.0), (7, 43.0)]
    click(browser, "Send again")
    browser.wait_for("document.body.innerText.includes('has it already')")
    assert post.carry() == 0 and browser.complaints == []


def test_an_operator_reads_counts_only(fleet: Fleet, server: Server, post: Post, browser: Browser) -> None:
    post.refuse(b"no packet at all", datetime.now(UTC), "not_a_packet")
    browser.show(f"{server.base_url}/#key={fleet.key('north')}")
    browser.wait_for("document.getElementById('bar')?.hidden === false")
    click(browser, "Ledger")
    click(browser, "Look into them")
    browser.wait_for("document.body.innerText.includes('only keys of the role admin')")
    assert browser.complaints == []


def test_yesterday_of_one_asset_is_exported(
    fleet: Fleet, server: Server, browser: Browser, pictures: Path, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = midnight - timedelta(days=1)
    for at, value in ((yesterday - timedelta(seconds=1), 1.0), (yesterday, 2.0), (midnight, 3.0)):
        fleet.packet("north-1", at, [(SPEED.number, 0, value, 0), (RPM.number, 0, 100 * value, 0)])
    for signal in (SPEED, RPM):
        fleet.latest("north-1", signal.number, midnight, 3.0)
    folder = tmp_path / "downloads"
    folder.mkdir()
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    browser.show(f"{server.base_url}/#key={fleet.key('north')}")
    browser.wait_for("document.getElementById('bar')?.hidden === false")
    browser.ask("sessionStorage.setItem('zone', 'utc')")
    browser.show("about:blank")
    browser.show(f"{server.base_url}/?utc#/asset/Car%201")
    click(browser, "Export")
    browser.wait_for("document.activeElement?.type === 'date'")
    assert browser.ask("document.activeElement.value") == f"{yesterday:%Y-%m-%d}"
    browser.photograph(pictures / "export.png")
    for form in ("csv", "parquet"):
        browser.ask(f"document.querySelector('.export select').value = '{form}'")
        click(browser, "Download")
        browser.wait_for("document.querySelector('.export .primary').innerText === 'Download'")
        file = folder / f"Car 1_{yesterday:%Y-%m-%d}.{form}"
        wait_for("the file is there", lambda at=file: at.exists() and at.stat().st_size > 0, 120.0, 0.05)  # type: ignore[misc]
        if form == "csv":
            with file.open(encoding="utf-8", newline="") as lines:
                rows = [(row["signal"], float(row["value"]), row["unit"]) for row in csv.DictReader(lines)]
        else:
            rows = [(row["signal"], row["value"], row["unit"]) for row in pq.read_table(file).to_pylist()]
        assert rows == [(SPEED.path, 2.0, "km/h"), (RPM.path, 200.0, RPM.unit)]
    assert browser.ask(WIDE) == [] and browser.complaints == []
