"""``fleetstream models`` on a real store, archive and Spark: every verb, its exit code, its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli import models as command
from stream_jobs.sinks.models import ModelRefused
from tests.anomaly.fix_models import RECIPE, T0
from tests.stream_jobs.fix_ingest import Line, heart
from tests.stream_jobs.fix_models import Room

__all__ = ["heart"]
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
Run = Callable[..., Any]


@pytest.fixture
def room(heart: Line) -> Room:
    return Room(heart)


@pytest.fixture
def run(room: Room, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(command, "load_settings", SimpleNamespace)
    monkeypatch.setattr(command, "open_stack", lambda _: None)
    monkeypatch.setattr(command, "registry_of", lambda _: room.registry)
    monkeypatch.setattr(command, "spark_of", lambda *_: nullcontext(room.line.spark))
    monkeypatch.setenv("COLUMNS", "240")
    return lambda *arguments: CliRunner().invoke(command.app, list(arguments))


def test_the_life_of_a_model_from_the_command_line(room: Room, run: Run) -> None:
    assert "no models yet" in run("list").stdout
    room.archive(4_200)
    (made,) = json.loads(run("train", RECIPE.name, "--json").stdout)
    assert made["new"] and made["devices"] == 3 and made["score"]["false_alarms"] == 0
    name = made["model"]
    since = datetime.fromtimestamp(T0 / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    promoted = json.loads(run("promote", name[:9], "--since", since, "--json").stdout)
    assert promoted["promoted"] and promoted["live"] is None and promoted["worse"] == []
    (row,) = json.loads(run("list", "--json").stdout)["models"]
    assert (row["state"], row["file"], row["drifting"]) == ("live", "ok", 0)

    model = room.registry.shelf.get(name)
    deaf, _ = room.registry.register(replace(model, detector=replace(model.detector, threshold=1e6)))  # type: ignore[type-var]
    refused = run("promote", deaf[:9])
    assert refused.exit_code == command.EXIT_WORSE and "is found in 0 of 3" in refused.stdout
    assert "nothing was changed" in refused.stderr and run("list").stdout.count(" live ") == 1
    shown = run("show", name[:9])
    assert name in shown.stdout and "promoted" in shown.stdout
    assert json.loads(run("show", name, "--json").stdout)["history"][0]["anew"] is True
    assert isinstance(run("show", "zz").exception, ModelRefused)

    back = json.loads(run("rollback", RECIPE.name, "--json").stdout)
    assert back["model"] is None and back["replaced"] == name
    assert isinstance(run("rollback", RECIPE.name).exception, ModelRefused)
    assert "every file has its row" in run("adopt").stdout
