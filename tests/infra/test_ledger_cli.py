"""``fleetstream ledger`` on a real store: one snapshot, ages with units, a dash for what nobody said, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from contracts.tables import ROLE_READER, ROLE_SINK
from infra.cli import ledger as command
from infra.enrol import Enrolment, enrol

Run = Callable[..., Any]


@pytest.fixture
def run(role_dsn: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """car-1 has told everything; car-2 has only stored packets; wt-1 belongs to another tenant."""
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        one, two, _ = enrol(
            connection,
            [
                Enrolment("car-1", "north", "Car 1", "car"), Enrolment("car-2", "north", "Car 2", "car"),
                Enrolment("wt-1", "south", "T 1", "turbine"),
            ],
        )  # fmt: skip
        for car, ranges in ((one, "{[1,5),[8,11)}"), (two, "{[1,3)}")):
            connection.execute(
                "INSERT INTO seen_ranges VALUES (%s, 1, 7, %s, %s, 7, 70, 2)", (car.device_key, car.tenant_id, ranges)
            )
        account = {"oldest_unacked_ms": 90_000, "not_accepted_samples": 3, "held": [[1, 6, 6]]}
        connection.execute(
            "INSERT INTO agent_status VALUES (%s, 1, 7, %s, 12, 0, now(), %s)",
            (one.device_key, one.tenant_id, json.dumps(account)),
        )
        connection.execute(
            "INSERT INTO agent_gaps VALUES (%s, 1, 5, 5, %s, 4, 3, 1, 10, 9, now())", (one.device_key, one.tenant_id)
        )
        connection.execute(
            "INSERT INTO ledger_gaps (device_key, boot_epoch, tenant_id, numbers, missing, since, opened_at)"
            " VALUES (%s, 1, %s, '{[7,8)}', '{[7,8)}', now() - interval '20 min', now())",
            (one.device_key, one.tenant_id),
        )
    monkeypatch.setattr(command, "load_settings", SimpleNamespace)
    monkeypatch.setattr(command, "open_stack", lambda _: None)
    monkeypatch.setattr(command, "reader_dsn", lambda _: role_dsn(ROLE_READER))
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *arguments: CliRunner().invoke(command.app, list(arguments))


def test_json_tells_every_part(run: Run) -> None:
    done = run("--json", "--device", "car-1")
    body: dict[str, Any] = json.loads(done.stdout)
    [row] = body["devices"]
    assert done.exit_code == command.EXIT_MISSING, "a gap is open"
    assert (row["accepted_packets"], row["stored_packets"], row["confirmed_packets"]) == (11, 7, 9)
    assert (row["held_packets"], row["dropped_packets"], row["missing_packets"]) == (1, 1, 3)
    assert (row["on_its_way_packets"], row["on_its_way"]) == (2, "{[7,8),[11,12)}")
    assert row["not_accepted_samples"] == 3 and row["oldest_waiting_ms"] >= 90_000
    [drop] = body["drops"]
    assert (drop["reason"], drop["class"], drop["packets"]) == ("disk_full", "safety", 1)
    [gap] = body["gaps"]
    assert (gap["state"], gap["missing"]) == ("open", "{[7,8)}") and gap["stood_ms"] >= 1_200_000


def test_the_table_has_units_and_no_zero_for_unknown(run: Run) -> None:
    done = run()
    lines = done.stdout.splitlines()
    car1, car2 = (next(line.split() for line in lines if line.startswith(name)) for name in ("car-1", "car-2"))
    assert car1[:9] == ["car-1", "1", "11", "9", "7", "3", "2", "1", "0"] and car1[9:11] == ["90", "s"]
    assert car2 == ["car-2", "1", "2", "–", "7", "0", "2", "0", "0", "–", "never"]
    assert "On devices: 1 packets. Never accepted: 3 samples." in lines[-1]
    assert "wt-1" not in done.stdout


def test_missing_says_which_where_and_since_when(run: Run) -> None:
    done = run("--missing")
    assert "6-7, 11" in done.stdout and "disk_full" in done.stdout and "20 min" in done.stdout
    assert "car-2" not in done.stdout
    assert "nothing is missing" in run("--missing", "--device", "car-2").stdout


def test_an_open_gap_is_an_error_and_a_young_or_ended_one_is_not(run: Run, role_dsn: Callable[[str], str]) -> None:
    for arguments in ((), ("--missing",), ("--json",), ("--device", "car-1")):
        assert run(*arguments).exit_code == command.EXIT_MISSING
    assert run("--device", "car-2").exit_code == 0
    for change in ("opened_at = NULL", "opened_at = now(), ended_at = now(), outcome = 'stored', missing = '{}'"):
        with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
            connection.execute(f"UPDATE ledger_gaps SET {change}".encode())
        assert run("--json").exit_code == run("--missing").exit_code == 0


def test_settled_makes_missing_an_error(run: Run, role_dsn: Callable[[str], str]) -> None:
    with psycopg.connect(role_dsn(ROLE_SINK)) as connection:
        connection.execute("DELETE FROM ledger_gaps")
    assert run().exit_code == 0
    assert run("--settled").exit_code == command.EXIT_MISSING
    assert run("--settled", "--device", "car-2").exit_code == 0


def test_sums_of_what_nobody_said_are_nothing() -> None:
    row = dict.fromkeys(command.SUMS, 1)
    silent = {**row, "confirmed_packets": None}
    assert command.totals([row, silent])["confirmed_packets"] == 1
    assert command.totals([silent])["confirmed_packets"] is None
    assert command.totals([])["confirmed_packets"] == 0


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=4))
def test_ranges_are_read_as_postgresql_writes_them(drawn: list[tuple[int, int]]) -> None:
    pairs = [(10 * n + first, 10 * n + first + more) for n, (first, more) in enumerate(drawn)]
    text = "{" + ",".join(f"[{first},{last + 1})" for first, last in pairs) + "}"
    assert command._pairs(text) == pairs
