"""``fleetstream alerts`` on a real store: list, show, move, and the reasons for what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from contracts.tables import ROLE_READER, ROLE_SINK
from infra.cli import alerts as command
from infra.errors import SetupError
from tests.api.fix_alerts import Watchroom
from tests.api.fix_api import Fleet, fleet

__all__ = ["fleet"]
Run = Callable[..., Any]


@pytest.fixture
def run(fleet: Fleet, role_dsn: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(command, "load_settings", SimpleNamespace)
    monkeypatch.setattr(command, "open_stack", lambda _: SimpleNamespace(dsn=lambda _: role_dsn(ROLE_SINK)))
    monkeypatch.setattr(command, "reader_dsn", lambda _: role_dsn(ROLE_READER))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(command.app, list(arguments))


def test_a_storm_is_listed_shown_and_resolved_from_the_command_line(fleet: Fleet, run: Run) -> None:
    room = Watchroom(fleet)
    for number in range(3):
        room.find(cause=f"c{number}", begun_s=number)
    room.work()
    assert "Car 1" in run("list").stdout
    (root,) = json.loads(run("list", "--json").stdout)
    assert len(json.loads(run("list", "--all", "--json").stdout)) == 3
    name = root["alert_id"]
    shown = run("show", name).stdout
    assert "coolant-own-past" in shown and "moves: acknowledged" in shown
    refused = run("move", name, "reopened")
    assert isinstance(refused.exception, SetupError) and "nothing was changed" in str(refused.exception)
    assert isinstance(run("show", "a-" + "0" * 16).exception, SetupError)
    assert run("move", name, "assigned", "--to", "Ada").stdout.strip() == f"{name} assigned"
    done = run("move", name, "resolved", "--as", "false", "--note", "wet plug", "--json")
    whole = json.loads(done.stdout)
    assert (whole["state"], whole["resolution"]) == ("resolved", "false")
    assert whole["events"][-1]["by_whom"].startswith("cli:")
    assert {one["state"] for one in whole["children"]} == {"resolved"}
    (row,) = json.loads(run("precision", "--json").stdout)
    assert (row["detector"], row["wrong"], row["precision"]) == ("coolant-own-past", 3, 0.0)
    assert json.loads(run("list", "--json").stdout) == []
