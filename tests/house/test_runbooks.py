"""Alarms and their pages: what they name exists, and every alarm has a page that says what to do."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from infra.cli.main import MENU, app
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


COMMANDS = sorted(set(re.findall(r"`fleetstream ([a-z][^`]*)`", TEXT)))


def test_the_page_names_commands_of_commands_too() -> None:
    assert len(COMMANDS) > 10 and {"edr asides", "alerts list"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_with_the_options_that_are_named(command: str) -> None:
    """Groups are followed as far as they go; what is left are arguments."""
    name, *words = shlex.split(command)
    assert name in dict(MENU)
    found, path = get_command(importlib.import_module(dict(MENU)[name]).app), []
    while isinstance(found, TyperGroup) and words:
        path.append(words.pop(0))
        assert path[-1] in found.commands, command
        found = found.commands[path[-1]]
    assert not isinstance(found, TyperGroup), f"{command}: the group's command is not said"
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= known
    shown = CliRunner().invoke(app, [name, *path, "--help"])
    assert shown.exit_code == 0 and "Example" in shown.stdout
