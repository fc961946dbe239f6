"""Pictures of a running stack's console for the docs: ``python -m tests.dashboards.screens ADDRESS [FOLDER] [NAME…]``.

ADDRESS is what `fleetstream demo` prints, key and all. Every page is photographed light, dark and narrow, from the
fleet that is running there; nothing is made up for the picture. NAMEs (`fleet`, `alert`, …) choose among the pages:
what one tenant has nothing of, another may. A page of which there is nothing yet is left out, and said so.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.dashboards.browser import Browser, find_browser, open_browser

FORMS = (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 360, "light"))
HEIGHT = 860
PAGES = ("fleet", "map", "region", "alerts", "ledger", "questions", "crash")
FIRST = {
    "asset": ("#/fleet", "document.querySelector('table a[href^=\"#/asset/\"]')?.getAttribute('href')"),
    "alert": ("#/alerts", "document.querySelector('.alerts tbody a')?.getAttribute('href')"),
}
"""Pages of one thing: the list that names it, and the first there."""
LOADED = "document.querySelector('main')?.innerText.length > 20 && !/Loading|asking for/.test(document.body.innerText)"
MAP_DRAWN = "(c => !c || (c.fleetMap.details && c.fleetMap.drawn))(document.querySelector('.map-stage canvas'))"
FURTHER_AWAY = "document.querySelector('.map-stage canvas').fleetMap.zoom(1 / 60)"
RESTED = "new Promise(done => setTimeout(done, 1500))"
"""The map draws its sheet once more when the hand rests."""


def photograph(browser: Browser, address: str, folder: Path, wanted: tuple[str, ...] = ()) -> list[Path]:
    """Every wanted page in every form; the files written."""
    base, _, key = address.partition("#")
    browser.show(f"{base}#{key}")
    browser.wait_for("document.querySelectorAll('table tbody tr').length > 1")
    written = []
    for name in wanted or (*PAGES, *FIRST):
        page: str | None = "#/map" if name == "region" else f"#/{name}"
        if name in FIRST:
            browser.show("about:blank")
            browser.show(f"{base}?list-{name}{FIRST[name][0]}")
            browser.wait_for(LOADED)
            page = browser.ask(FIRST[name][1])
        if page is None:
            print(f"there is no {name} yet to be shown", file=sys.stderr)
            continue
        for form, width, scheme in FORMS:
            browser.show("about:blank")
            browser.show(f"{base}?{name}-{form}{page}", width, HEIGHT, scheme)
            browser.wait_for(f"{LOADED} && {MAP_DRAWN}")
            if name == "region":
                browser.ask(FURTHER_AWAY)
            browser.ask(RESTED)
            file = folder / f"{name}-{form}.png"
            browser.photograph(file)
            written.append(file)
    return written


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[1] if len(arguments) > 1 else "docs/screens")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch,
        open_browser(str(find_browser()), Path(scratch) / "profile") as browser,
    ):
        for file in photograph(browser, arguments[0], folder, tuple(arguments[2:])):
            print(file)
        complaints = [line for line in browser.complaints if "403" not in line]  # a role may not see everything
        for line in complaints:
            print(f"the page complains: {line}", file=sys.stderr)
        return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
