"""``fleetstream command``: ask a device for something, see what became of it.

Exit codes: 0 accepted, listed or done; 1 refused here, or (with --wait) not done; 4 (with --wait) no answer in time.
"""

from __future__ import annotations

import getpass
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import typer
from psycopg.rows import dict_row

from api.command_requests import new_request
from api.queries.commands import CHANGES, LIST, MOST_OPEN, ONE, SUBMIT
from contracts.command_life import OPEN, State
from contracts.command_menu import MENU
from contracts.names import check_device
from contracts.tables import ROLE_SINK
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.errors import SetupError
from infra.rooms import reader_dsn

EXIT_NOT_DONE, EXIT_NO_ANSWER = 1, 4
LOOK_S = 0.2
COLUMNS = ("created_at", "device", "command_id", "kind", "state", "reason", "attempts", "asked_by")
REFUSALS = {
    "no_such_device": "There is no device {device} in use; `fleetstream device enrol` makes one",
    "too_many": f"{MOST_OPEN} commands wait for {{device}} already; nothing was asked: let some end first",
    "different": "The key {key} belongs to another request; nothing was asked: take another one",
}

app = typer.Typer(help="Ask devices for something.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Ask devices for something."""


@app.command("send", epilog="Example: fleetstream command send van-7 sampling profile=interval min_interval_ms=5000")
def send(
    device: str = typer.Argument(..., help="Name of the device."),
    kind: str = typer.Argument(..., help="One of: " + ", ".join(kind.name for kind in MENU.values() if kind.offered)),
    arguments: list[str] | None = typer.Argument(None, help="name=value; a value is JSON, or else text."),
    expires_s: int | None = typer.Option(None, "--expires", min=1, help="Seconds it may wait; default: the kind's."),
    key: str | None = typer.Option(None, "--key", help="Idempotency key: the same key and request, one command."),
    wait_s: float = typer.Option(0.0, "--wait", min=0.0, help="Seconds to wait for the answer."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Accept a command for a device; it waits until the device answers or it expires, also while the device is off."""
    check_device(device)
    asked_by = f"cli:{getpass.getuser()}"
    request = new_request(device, kind, _arguments(arguments or []), asked_by, datetime.now(UTC), expires_s)
    request = replace(request, idempotency_key=key)
    dsn = open_stack(load_settings()).dsn(ROLE_SINK)
    with psycopg.connect(dsn, autocommit=True) as connection:
        said, command_id = connection.execute(SUBMIT.encode(), request.parameters()).fetchone() or ("", None)
    if said in REFUSALS:
        raise SetupError(REFUSALS[said].format(device=device, key=key))
    row = _wait(dsn, str(command_id), wait_s)
    print_json(row) if as_json else typer.echo(f"{row['command_id']} {row['state']} {row['reason']}".rstrip())
    if wait_s and row["state"] != State.DONE:
        raise typer.Exit(EXIT_NO_ANSWER if row["state"] in OPEN else EXIT_NOT_DONE)


@app.command("list", epilog="Example: fleetstream command list --device van-7 --json")
def list_commands(
    device: str | None = typer.Option(None, "--device", help="One device only."),
    state: State | None = typer.Option(None, "--state", help="Only in this state."),
    limit: int = typer.Option(100, min=1, max=10_000, help="At most so many, newest first."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Commands and what became of them, newest first."""
    values = {"device": device, "state": state, "before": None, "before_id": None, "limit": limit}
    with psycopg.connect(reader_dsn(open_stack(load_settings())), row_factory=dict_row) as connection:
        rows = connection.execute(LIST.encode(), values).fetchall()
    if as_json:
        print_json(rows)
    else:
        print_table(list(COLUMNS), [[row[name] for name in COLUMNS] for row in rows])


@app.command("show", epilog="Example: fleetstream command show c-0a1b2c3d4e5f6071")
def show(
    command_id: str = typer.Argument(..., help="As `command list` tells it."), as_json: bool = JSON_OPTION
) -> None:
    """One command, its answer, and every change of its state: when, by whom, why."""
    row = _read(reader_dsn(open_stack(load_settings())), command_id)
    if as_json:
        print_json(row)
        return
    for name, value in row.items():
        if name != "changes":
            typer.echo(f"{name}: {json.dumps(value) if isinstance(value, dict) else '' if value is None else value}")
    columns = ["changed_at", "changed_by", "from_state", "to_state", "attempts", "reason"]
    print_table(columns, [[change[name] for name in columns] for change in row["changes"]])


def _read(dsn: str, command_id: str) -> dict[str, Any]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        row = connection.execute(ONE.encode(), (command_id,)).fetchone()
        if row is None:
            raise SetupError(f"There is no command {command_id}; `fleetstream command list` shows them")
        return {**row, "changes": connection.execute(CHANGES.encode(), (command_id,)).fetchall()}


def _wait(dsn: str, command_id: str, wait_s: float) -> dict[str, Any]:
    """The command once it ended, or as it stands when the time is over."""
    deadline = time.monotonic() + wait_s
    while True:
        row = _read(dsn, command_id)
        if row["state"] not in OPEN or time.monotonic() >= deadline:
            return row
        time.sleep(LOOK_S)


def _arguments(texts: list[str]) -> dict[str, Any]:
    """``name=value`` pairs. Raises SetupError."""
    made: dict[str, Any] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise SetupError(f"{text!r} is not name=value")
        try:
            made[name] = json.loads(value)
        except ValueError:
            made[name] = value
    return made
