"""What the page's files promise without a browser: nothing from elsewhere, nothing inline, readable colours."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from dashboards import CONSOLE_FOLDER

STYLE = (CONSOLE_FOLDER / "style.css").read_text(encoding="utf-8")
SCRIPTS = {file.name: file.read_text(encoding="utf-8") for file in CONSOLE_FOLDER.glob("*.js")}
PAGE = (CONSOLE_FOLDER / "index.html").read_text(encoding="utf-8")
TEXT_ON_GROUND = [
    (text, ground)
    for text in (
        "ink", "muted", "accent", "live", "catching", "delayed", "silent", "recording", "none", "line-ink"
    )
    for ground in ("surface", "ground", "hover", "raised")
] + [("accent-ink", "accent")]  # fmt: skip


class _Page(HTMLParser):
    """Collects what could be inline or from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        for name, value in attributes:
            if name == "style" or name.startswith("on") or (value or "").startswith(("http", "//", "data:")):
                self.found.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self.inside in ("script", "style") and data.strip():
            self.found.append(f"{self.inside}: {data[:40]}")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""


def test_nothing_is_inline_or_from_elsewhere() -> None:
    page = _Page()
    page.feed(PAGE)
    assert page.found == []
    for name, text in {**SCRIPTS, "style.css": STYLE}.items():
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function|document\.write", text), (
            name
        )


def test_the_check_of_the_page_can_fail() -> None:
    page = _Page()
    page.feed('<p style="color:red" onclick="x()"><script>alert(1)</script><img src="https://x.example/a.png">')
    assert len(page.found) == 4


def variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", text))


def contrast(one: str, other: str) -> float:
    """WCAG 2.2 contrast ratio of two #rrggbb colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_every_ground(scheme: str) -> None:
    light, dark = (variables(part) for part in STYLE.split("@media (prefers-color-scheme: dark)")[:2])
    colours = {**light, **(dark if scheme == "dark" else {})}
    low = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in TEXT_ON_GROUND}
    assert not {pair: round(value, 2) for pair, value in low.items() if value < 4.5}


def test_contrast_is_the_known_formula() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_the_page_is_light() -> None:
    sizes = {file.name: file.stat().st_size for file in CONSOLE_FOLDER.iterdir()}
    assert sizes.pop("world.json") < 350_000, "asked for by the map only, after the page stands"
    assert sizes.pop("details.json") < 850_000, "asked for after the outlines, and the map does without"
    assert sizes.pop("letters.js") < 15_000, "asked for by who looks into dead letters"
    assert sum(sizes.values()) < 200_000
