"""Alarms and their pages: what they name exists, and every alarm has a page that says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.cli.main import MENU
from tests.house.test_policies import metric_names

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "runbooks.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_every_metric_exists() -> None:
    named = set(re.findall(r"`(fleetstream_[a-z_]+)`", TEXT))
    assert len(named) > 10
    assert named <= metric_names()


def test_every_alarm_has_its_page() -> None:
    alarms = re.findall(r"^\| \[[^]]+\]\(#([a-z-]+)\) \|", TEXT, re.M)
    pages = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", TEXT, re.M)}
    assert len(alarms) >= 10 and set(alarms) == pages


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`fleetstream ([a-z]+)", TEXT))))
def test_every_command_exists(command: str) -> None:
    assert command in dict(MENU)
