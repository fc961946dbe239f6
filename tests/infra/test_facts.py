"""``fleetstream facts`` and ``fleetstream ask`` on a real store: all lines or none, and answers as people read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from contracts.errors import Rejected
from contracts.tables import ROLE_READER
from infra.cli import ask, facts
from infra.errors import SetupError
from infra.facts import COLUMNS, read_facts
from tests.api.fix_api import Fleet, fleet

__all__ = ["fleet"]
FUEL = 32
CSV = """asset,fleet,model,driver,load_capacity_kg,nominal_l_100km
Car 1,East,H-2,=Ada,1500,12.5
Car 2,East,,[Bela],,
"""
KNOWN = "SELECT name, fleet, model, driver, load_capacity_kg, fuel_capacity_l, nominal_l_100km FROM assets ORDER BY 1"


@dataclass
class Fake:
    """As much of a stack as the commands ask for."""

    dsn: Callable[[str], str]


@pytest.fixture
def run(fleet: Fleet, role_dsn: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for module in (ask, facts):
        monkeypatch.setattr(module, "load_settings", SimpleNamespace)
        monkeypatch.setattr(module, "open_stack", lambda _: Fake(role_dsn))
    monkeypatch.setattr(ask, "reader_dsn", lambda _: role_dsn(ROLE_READER))
    monkeypatch.setenv("COLUMNS", "140")
    return lambda module, *said: CliRunner().invoke(module.app, [str(one) for one in said])


def known(fleet: Fleet) -> dict[str, tuple[Any, ...]]:
    with psycopg.connect(fleet.dsn) as connection:
        return {row[0]: row[1:] for row in connection.execute(KNOWN.encode()).fetchall()}


def test_facts_are_written_all_or_none_and_into_the_book(run: Any, fleet: Fleet, tmp_path: Path) -> None:
    file, blank = tmp_path / "cars.csv", (None,) * 6
    file.write_text(CSV)
    done = run(facts, file, "--tenant", "north", "--dry-run")
    assert (done.exit_code, done.stdout) == (0, "2 assets could be written\n")
    assert set(known(fleet).values()) == {blank}
    done = run(facts, file, "--tenant", "north", "--json")
    assert json.loads(done.stdout) == {"assets": 2, "written": True}
    assert known(fleet)["Car 1"] == ("East", "H-2", "=Ada", 1500.0, None, 12.5)
    file.write_text("asset,fuel_capacity_l,fleet\nCar 1,80,\n")
    assert run(facts, file, "--tenant", "north").exit_code == 0
    assert known(fleet)["Car 1"] == ("East", "H-2", "=Ada", 1500.0, 80.0, 12.5), "an empty cell leaves what is known"
    file.write_text("asset,fleet\nCar 1,West\nCar 9,West\nTurbine 1,West\n")
    refused = run(facts, file, "--tenant", "north")
    assert isinstance(refused.exception, Rejected) and "Car 9, Turbine 1" in str(refused.exception)
    assert known(fleet)["Car 1"][0] == "East"
    with psycopg.connect(fleet.sink_dsn) as connection:
        pages = connection.execute(
            "SELECT kafka_value FROM outbox WHERE topic = 'book' ORDER BY outbox_id DESC LIMIT 1"
        )
        (row,) = json.loads(bytes(pages.fetchall()[0][0]))["rows"]
    assert (row["name"], row["fleet"], row["fuel_capacity_l"]) == ("Car 1", "East", 80), "a lost store knows it again"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the head names asset"),
        ("name,fleet\nCar 1,East\n", "the head names asset"),
        ("asset,wheels\nCar 1,4\n", "the head names asset"),
        ("asset,fleet\n,East\nCar 1,East\nCar 1,West\n", "line 2.*line 4.*named twice"),
        ("asset,load_capacity_kg\nCar 1,-5\nCar 2,nan\nCar 3,many\n", "line 2.*line 3.*line 4"),
        ("asset,fleet\nCar 1,East,and more\n", "no more cells"),
        (f"asset,driver\nCar 1,{'x' * 201}\n", "more than 200"),
    ],
)
def test_every_bad_line_is_named(text: str, told: str) -> None:
    with pytest.raises(Rejected, match=told):
        read_facts(text.splitlines(keepends=True))


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_read_or_refused(text: str, headed: bool) -> None:
    lines = (",".join(COLUMNS) + "\n" + text if headed else text).splitlines(keepends=True)
    try:
        found = read_facts(lines)
    except Rejected as error:
        assert error.reason == "bad_facts"
    else:
        assert len({one.asset for one in found}) == len(found)
        assert all(value for one in found for value in one.values.values())


def test_a_question_at_the_command_line(run: Any, fleet: Fleet, tmp_path: Path) -> None:
    file, now = tmp_path / "cars.csv", datetime.now(UTC)
    file.write_text(CSV)
    assert run(facts, file, "--tenant", "north").exit_code == 0
    fleet.latest("north-1", FUEL, now - timedelta(minutes=1), 8.5)
    fleet.latest("north-2", FUEL, now - timedelta(minutes=1), 80.0)
    body = json.loads(run(ask, "low-fuel", "--tenant", "north", "--json").stdout)
    assert [(item["asset"], item["driver"], item["fuel_level"]) for item in body["items"]] == [("Car 1", "=Ada", 8.5)]
    assert body["counted"] == {"vehicles": 3, "no_value": 1, "too_old": 0} and body["threshold"] == 10.0
    shown = run(ask, "low-fuel", "--tenant", "north", "--fleet", "East", "--threshold", "90")
    assert "fuel_level (percent)" in shown.stdout and "[Bela]" in shown.stdout and "vehicles=2" in shown.stderr
    lines = run(ask, "low-fuel", "--tenant", "north", "--csv").stdout.splitlines()
    assert lines[0] == "asset,driver,fuel_level,measured_at,age_s" and lines[1].startswith("Car 1,'=Ada,8.5,")
    listed = json.loads(run(ask, "--json").stdout)["items"]
    assert len(listed) == 13 and "low-fuel" in run(ask).stdout
    for said, told in (
        (["low-fuel"], "--tenant: north, south"), (["low-fuel", "--tenant", "east"], "no tenant east"),
        (["low-feul", "--tenant", "north"], "no question"), (["last-location", "--tenant", "north"], "say which"),
    ):  # fmt: skip
        refused = run(ask, *said)
        assert isinstance(refused.exception, SetupError) and told in str(refused.exception)
