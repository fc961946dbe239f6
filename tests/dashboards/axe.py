"""axe-core in the page: fetched once by pip under its pinned hash, kept in the cache, run through the debugging pipe.

The wheel is only a container that the package index has for the script: it is not installed, and the tools that it
would bring along stay away.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import SetupError
from infra.paths import default_cache, exclusive
from tests.dashboards.browser import Browser

PINNED = Path(__file__).with_name("axe.txt")
SCRIPT = "axe_playwright_python/axe.min.js"
GRAVE = ("serious", "critical")
FETCH_S = 120
RUN = """axe.run(document, {resultTypes: ['violations', 'incomplete'], runOnly: %s}).then(told => told.violations.map(
  one => ({rule: one.id, impact: one.impact, help: one.help,
           where: one.nodes.map(node => node.target.join(' ') + ' | ' + (node.any[0]?.message ?? node.html))})))"""
ALL_RULES = "{type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}"
FORM_RULES = (
    "{type: 'rule', values: ['color-contrast', 'link-in-text-block', 'target-size', 'scrollable-region-focusable']}"
)
"""What can differ between two forms of a page whose elements are the same."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule and the elements that break it."""

    rule: str
    impact: str
    help: str
    where: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.impact}: {self.rule}: {self.help}: {'; '.join(self.where[:4])}"


def axe_script(cache: Path | None = None) -> str:
    """The script's text, verified. Raises SetupError when it is not in the cache and cannot be fetched."""
    wanted = re.findall(r"sha256:([0-9a-f]{64})", PINNED.read_text(encoding="utf-8"))
    folder = (cache or default_cache()) / "axe"
    with exclusive(folder / ".lock"):
        found = _verified(folder, wanted)
        if found is None:
            _fetch(folder)
            found = _verified(folder, wanted)
    if found is None:
        raise SetupError(f"pip fetched axe-core but no file in {folder} has the hash that {PINNED.name} names")
    with zipfile.ZipFile(found) as wheel:
        return wheel.read(SCRIPT).decode("utf-8")


def _verified(folder: Path, wanted: list[str]) -> Path | None:
    for file in folder.glob("*.whl"):
        if hashlib.sha256(file.read_bytes()).hexdigest() in wanted:
            return file
    return None


def _fetch(folder: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary", ":all:", "--require-hashes", "--dest", str(folder), "--requirement", str(PINNED),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"pip could not fetch axe-core within {FETCH_S} s; is there a network?") from error
    if done.returncode:
        raise SetupError(f"pip could not fetch axe-core: {done.stderr.strip()[-400:]}")


def faults(browser: Browser, script: str, rules: str = ALL_RULES) -> list[Fault]:
    """Every broken rule on the page as it stands now."""
    if not browser.ask("typeof axe === 'object'"):
        browser.ask(f"{script}; undefined")
    told: list[dict[str, Any]] = browser.ask(RUN % rules)
    return [Fault(one["rule"], one["impact"] or "unknown", one["help"], tuple(one["where"])) for one in told]


def grave(found: list[Fault]) -> list[str]:
    return [str(one) for one in found if one.impact in GRAVE]
