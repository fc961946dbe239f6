"""Pictures of a running stack's console for the docs: ``python -m tests.dashboards.screens ADDRESS [FOLDER]``.

ADDRESS is what `fleetstream demo` prints, key and all. Every page is photographed light, dark and narrow, from the
fleet that is running there; nothing is made up for the picture. A page without anything to show is left out.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.dashboards.browser import Browser, find_browser, open_browser

FORMS = (("light", 1280, "light"), ("dark", 1280, "dark"), ("narrow", 400, "light"))
HEIGHT = 860
LINKS = "[...document.querySelectorAll('#bar nav a')].map(one => one.getAttribute('href'))"
FIRST_ASSET = "document.querySelector('table a[href^=\"#/asset/\"]')?.getAttribute('href')"
SETTLED = "new Promise(done => setTimeout(done, 2500))"
"""Charts fill and the map fades in; a picture is not a measurement."""


def photograph(browser: Browser, address: str, folder: Path) -> list[Path]:
    """Every page in every form; the files written."""
    base, _, key = address.partition("#")
    browser.show(f"{base}#{key}")
    browser.wait_for("document.querySelectorAll('table tbody tr').length > 1")
    browser.wait_for(FIRST_ASSET)
    pages = [*browser.ask(LINKS), browser.ask(FIRST_ASSET)]
    written = []
    for page in dict.fromkeys(pages):
        name = page.removeprefix("#/").split("/")[0]
        for form, width, scheme in FORMS:
            browser.show("about:blank")
            browser.show(f"{base}?{form}{page}", width, HEIGHT, scheme)
            browser.wait_for("document.querySelector('main')?.innerText.length > 20")
            browser.ask(SETTLED)
            file = folder / f"{name}-{form}.png"
            browser.photograph(file)
            written.append(file)
    return written


def main(arguments: list[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[1] if len(arguments) == 2 else "docs/screens")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_browser(str(find_browser()), Path(scratch) / "profile") as browser,
    ):
        for file in photograph(browser, arguments[0], folder):
            print(file)
        for line in browser.complaints:
            print(f"the page complains: {line}", file=sys.stderr)
        return 1 if browser.complaints else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
