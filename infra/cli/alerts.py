"""``fleetstream alerts``: what needs a person, why, and moving it.

Exit codes: 0 listed, shown or moved; 1 refused, with the reason.
"""

from __future__ import annotations

import getpass
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import typer
from psycopg.rows import dict_row

from anomaly.alerts.life import DEFAULT_SUPPRESSION_MS, MOVES, OPEN, Move
from api.queries.alerts import (
    CHILDREN,
    EVENTS,
    FINDINGS,
    LIST,
    LOCK,
    MOVE,
    ONE,
    PRECISION,
    RIVAL,
    Asked,
    Wanted,
    plan_move,
)
from contracts.alert import AlertState, Resolution
from contracts.errors import Rejected
from contracts.finding import Severity
from contracts.tables import ROLE_SINK
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.errors import SetupError
from infra.rooms import reader_dsn

COLUMNS = ("alert_id", "severity", "asset", "cause", "state", "since", "detector", "findings", "grouped", "assignee")
MOVABLE = tuple(dict.fromkeys(state for moves in MOVES.values() for state in moves))

app = typer.Typer(help="See what needs a person, and move it.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """See what needs a person, and move it."""


@app.command("list", epilog="Example: fleetstream alerts list --severity 3 --json")
def list_alerts(
    everything: bool = typer.Option(False, "--all", help="Also what is resolved or retracted, and what is grouped."),
    asset: str | None = typer.Option(None, "--asset", help="Of this asset only."),
    severity: int = typer.Option(1, "--severity", min=1, max=4, help="At least: 1 note to 4 critical."),
    limit: int = typer.Option(100, min=1, max=10_000, help="At most so many, newest first."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Open alerts of all tenants, newest first; one of each storm."""
    wanted = Wanted(None if everything else OPEN, asset, severity=severity, grouped=everything, limit=limit)
    rows = _read(LIST, wanted.parameters())
    if as_json:
        print_json(rows)
        return
    shown = [{**row, "severity": Severity(row["severity"]).name.lower()} for row in rows]
    print_table(list(COLUMNS), [[row[name] for name in COLUMNS] for row in shown])


@app.command("show", epilog="Example: fleetstream alerts show a-0a1b2c3d4e5f6071")
def show(alert_id: str = typer.Argument(..., help="As `alerts list` tells it."), as_json: bool = JSON_OPTION) -> None:
    """One alert: its findings, every step of its life, and where it may be moved from here."""
    whole = _whole(alert_id)
    if as_json:
        print_json(whole)
        return
    for name, value in whole.items():
        if not isinstance(value, list):
            typer.echo(f"{name}: {'' if value is None else value}")
    typer.echo(f"moves: {', '.join(whole['moves']) or 'none'}")
    for part in ("items", "children", "events"):
        if rows := whole[part]:
            typer.echo(f"\n{part}")
            print_table(list(rows[0]), [list(row.values()) for row in rows])


@app.command("move", epilog='Example: fleetstream alerts move a-0a1b2c3d4e5f6071 resolved --as false --note "wet plug"')
def move(
    alert_id: str = typer.Argument(..., help="As `alerts list` tells it."),
    to_state: AlertState = typer.Argument(..., help=f"One of: {', '.join(MOVABLE)}."),
    resolution: Resolution | None = typer.Option(None, "--as", help="With resolved: was the detector right?"),
    assignee: str | None = typer.Option(None, "--to", help="With assigned: who has it now."),
    suppress_h: float | None = typer.Option(
        None, "--hours", min=0.1, help=f"With suppressed: for how long; default {DEFAULT_SUPPRESSION_MS // 3_600_000}."
    ),
    note: str = typer.Option("", "--note", help="Why; it stands in the history."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Move an alert; a resolution is also that of what is grouped under it."""
    now_ms = time.time_ns() // 1_000_000
    until_ms = None if suppress_h is None else now_ms + int(suppress_h * 3_600_000)
    asked = Asked(alert_id, Move(to_state, assignee, resolution, until_ms, note), f"cli:{getpass.getuser()}")
    name = {"alert_id": alert_id}
    with psycopg.connect(open_stack(load_settings()).dsn(ROLE_SINK), row_factory=dict_row) as connection:
        rows = connection.execute(LOCK.encode(), name).fetchall()
        if alert_id not in {row["alert_id"] for row in rows}:
            raise _no_alert(alert_id)
        rivals = [row["alert_id"] for row in connection.execute(RIVAL.encode(), name).fetchall()]
        try:
            steps = plan_move(rows, rivals, asked, now_ms)
        except Rejected as error:
            raise SetupError(f"{error.detail}; nothing was changed") from error
        for step in steps:
            connection.execute(MOVE.encode(), step)
    whole = _whole(alert_id)
    print_json(whole) if as_json else typer.echo(f"{alert_id} {whole['state']} {whole['resolution'] or ''}".rstrip())


@app.command("precision", epilog="Example: fleetstream alerts precision --months 3 --json")
def precision(
    months: int = typer.Option(12, min=1, max=120, help="About so many months back."), as_json: bool = JSON_OPTION
) -> None:
    """How often each detector was right, by month, as people resolved its alerts (all tenants, one row each)."""
    rows = _read(PRECISION, {"since": datetime.now(UTC) - timedelta(days=31 * months)})
    if as_json:
        print_json(rows)
        return
    columns = [
        "tenant",
        "detector",
        "month",
        "alerts",
        "confirmed",
        "wrong",
        "unclear",
        "unresolved",
        "precision",
        "low",
        "high",
    ]
    print_table(columns, [[_short(row[name]) for name in columns] for row in rows])


def _short(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m}"
    return f"{value:.2f}" if isinstance(value, float) else value


def _whole(alert_id: str) -> dict[str, Any]:
    found = _read(ONE, (alert_id,))
    if not found:
        raise _no_alert(alert_id)
    parts = {"items": FINDINGS, "children": CHILDREN, "events": EVENTS}
    moves = [str(state) for state in MOVES[AlertState(found[0]["state"])]]
    return {**found[0], "moves": moves, **{name: _read(statement, (alert_id,)) for name, statement in parts.items()}}


def _read(statement: str, values: Any) -> list[dict[str, Any]]:
    dsn = reader_dsn(open_stack(load_settings()))
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        return connection.execute(statement.encode(), values).fetchall()


def _no_alert(alert_id: str) -> SetupError:
    return SetupError(f"There is no alert {alert_id}; `fleetstream alerts list --all` shows them")
