"""A newcomer's way in: the seven files that ARCHITECTURE.md names exist and can be read in half an hour."""

from __future__ import annotations

import re

from tests.house.tree import ROOT

LINES_A_MINUTE = 50
"""Prose and code of this density, read once with understanding."""


def test_seven_files_fit_half_an_hour() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    path = re.findall(r"`([a-z_/]+\.py)`", text.split("## Seven files", 1)[1])
    assert len(path) == 7
    lines = {name: (ROOT / name).read_text(encoding="utf-8").count("\n") for name in path}
    assert sum(lines.values()) <= 30 * LINES_A_MINUTE, lines
