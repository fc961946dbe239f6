"""axe-core finds no serious or critical fault on any page, for any role, light and dark, narrow and wide."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from api.keys import ROLES
from contracts.packet import Quality
from contracts.signals import catalogue
from infra.enrol import Enrolment
from infra.errors import SetupError
from tests.api.fix_alerts import COOLANT, Watchroom
from tests.api.fix_api import RPM, SPEED, Fleet
from tests.api.fix_letters import Post, post
from tests.api.test_edr import Crashed, crashed
from tests.dashboards.axe import ALL_RULES, FORM_RULES, axe_script, faults, grave
from tests.dashboards.browser import Browser, find_browser
from tests.dashboards.test_alerts_page import room
from tests.dashboards.test_page import drive

__all__ = ["crashed", "post", "room"]

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium on PATH; install chromium to test the page")
LATITUDE, LONGITUDE, FUEL = (
    catalogue().by_path(path).number
    for path in (
        "Vehicle.CurrentLocation.Latitude", "Vehicle.CurrentLocation.Longitude",
        "Vehicle.Powertrain.FuelSystem.RelativeLevel",
    )
)  # fmt: skip
SETTLED = (
    "document.querySelector('main')?.innerText.length > 20 && !/Loading|Asking/.test(document.body.innerText)"
    " && document.getElementById('tenant').textContent !== ''"
)
PAGES = (
    "#/fleet", "#/map", "#/alerts", "#/ledger", "#/ledger/letters", "#/questions", "#/questions/low-fuel", "#/crash"
)  # fmt: skip
FORMS = ((1280, "light", ALL_RULES), (360, "dark", ALL_RULES), (1280, "dark", FORM_RULES), (360, "light", FORM_RULES))


@pytest.fixture(scope="session")
def axe() -> str:
    try:
        return axe_script()
    except SetupError as error:
        pytest.skip(f"axe-core is neither in the cache nor to be fetched: {error}")


@pytest.fixture
def all_states(crashed: Crashed, room: Watchroom, post: Post) -> dict[str, str]:
    """Something on every page, every state of data and quality once; the addresses of single things."""
    fleet, now = crashed.fleet, datetime.now(UTC).replace(microsecond=0)
    fleet.enrol(
        *(Enrolment(f"north-{n}", "north", f"Van {n:02d}", "car") for n in range(10, 14)),
        Enrolment("north-r1", "north", "2024-03-01 kit drive", "car", kind="recording"),
        Enrolment("north-t1", "north", "Hill 1", "turbine", place=(54.4, 9.1)),
    )
    drive(fleet, "north-1", now, 1)
    for device, ago, received in (
        ("north-1", 0, 0),
        ("north-2", 9_000, 0),
        ("north-10", 40, 40),
        ("north-11", 9e4, 9e4),
    ):
        at, came = now - timedelta(seconds=ago), now - timedelta(seconds=received)
        for signal, value in ((SPEED, 57.4), (RPM, 1_608.0), (COOLANT, 88.4)):
            fleet.latest(device, signal.number, at, value, received=came)
        for number, value in ((LATITUDE, 52.5), (LONGITUDE, 13.3), (FUEL, 8.0)):
            fleet.latest(device, number, at, value, received=came)
    fleet.latest("north-12", COOLANT.number, now, float("nan"), Quality.NOT_FINITE)
    fleet.latest("north-r1", SPEED.number, now - timedelta(days=600), 44.0)
    letter = post.refuse(post.frame(now + timedelta(days=365), 7, 4_200, device="north-2"), now, "future", "north-2", 7)
    key, tenant = fleet.devices["north-2"], fleet.tenants["north"]
    fleet.execute(
        "INSERT INTO ledger_gaps (device_key, boot_epoch, tenant_id, numbers, missing, since, opened_at)"
        " VALUES (%s, 1, %s, '{[1800,1805)}', '{[1800,1805)}', now() - interval '20 min', now())", key, tenant,
    )  # fmt: skip
    fleet.execute("INSERT INTO agent_gaps VALUES (%s, 1, 3, 9, %s, 1, 0, 7, 70, 20, now())", key, tenant)
    alert = room.rows("SELECT alert_id FROM alert_rows WHERE severity = 3")[0][0]
    return {
        "asset": "#/asset/Car%201", "letter": f"#/ledger/letters/{letter}", "alert": f"#/alerts/{alert}",
        "crash": f"#/crash/{crashed.record}",
    }  # fmt: skip


def look(browser: Browser, axe: str, forms: tuple[tuple[int, str, str], ...]) -> list[str]:
    found = []
    for width, scheme, rules in forms:
        wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        browser.call("Emulation.setEmulatedMedia", features=features)
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found += [f"{width} {scheme}: {fault}" for fault in grave(faults(browser, axe, rules))]
    return found


def enter(browser: Browser, base: str, fleet: Fleet, role: str) -> None:
    browser.show("about:blank")
    browser.show(f"{base}/?{role}#key={fleet.key('north', role)}")
    browser.wait_for(SETTLED)


def open_page(browser: Browser, page: str) -> None:
    browser.ask(f"location.hash = {page!r}")
    browser.wait_for(SETTLED)


def test_no_page_keeps_anybody_out(crashed: Crashed, all_states: dict[str, str], browser: Browser, axe: str) -> None:
    base, found = crashed.server.base_url, {}
    browser.show(base)
    browser.wait_for("document.activeElement?.id === 'key'")
    found["door"] = look(browser, axe, FORMS)
    for role in ROLES:
        enter(browser, base, crashed.fleet, role)
        whole = role == "admin"
        for page in (*PAGES, *all_states.values()) if whole else PAGES:
            open_page(browser, page)
            found[f"{role} {page}"] = look(browser, axe, FORMS if whole else FORMS[:1])
    browser.wait_for("document.querySelector('form.basis')")
    browser.ask(
        "(f => { f.basis.value = 'owner_consent'; f.reference.value = 'letter 12';"
        " f.purpose.value = 'claim 4711'; f.requestSubmit() })(document.querySelector('form.basis'))"
    )
    browser.wait_for("document.querySelectorAll('.figure').length >= 1")
    found["report"] = look(browser, axe, FORMS)
    told = [f"{page}: {fault}" for page, faults in found.items() for fault in faults]
    assert not told, "\n".join(told)
    assert [one for one in browser.complaints if "403" not in one] == [], "a role may not see everything"


def test_axe_sees_a_fault(browser: Browser, axe: str) -> None:
    browser.show("data:text/html,<html lang=en><title>t</title><main><h1>t</h1><button></button>")
    assert any("button-name" in one for one in grave(faults(browser, axe)))
