"""``fleetstream letters``: what was set aside, looked into and sent again.

Exit codes: 0 listed, shown, sent or stored already; 1 it cannot be sent, and nothing was changed.
"""

from __future__ import annotations

import asyncio
import getpass
from datetime import UTC, datetime
from typing import Any

import psycopg
import typer
from psycopg.rows import DictRow, dict_row

from api.letters import Repair, open_letter
from api.queries.letters import LetterFilter, list_letters, read_id, sent_again, write_id
from api.resubmit import Asked, Outcome, obstacle, require_letter, resubmit
from api.shapes_letters import shown
from contracts.tables import ROLE_SINK
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table

COLUMNS = ("received_at", "id", "kept_by", "device", "reason", "size_bytes", "sent_again")
BYTES_SHOWN = 64

app = typer.Typer(help="Dead letters and quarantined packets.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Dead letters and quarantined packets."""


@app.command("list", epilog="Example: fleetstream letters list --reason future --json")
def list_command(
    reason: str | None = typer.Option(None, "--reason", help="Set aside for this reason only."),
    device: str | None = typer.Option(None, "--device", help="Of this device only."),
    limit: int = typer.Option(50, min=1, max=10_000, help="At most so many, newest first."),
    as_json: bool = JSON_OPTION,
) -> None:
    """What was set aside, newest first."""
    rows = asyncio.run(_list(_dsn(), LetterFilter(None, reason, device), limit))
    told = [{**row, "id": write_id(row)} for row in rows]
    if as_json:
        print_json([{name: value for name, value in row.items() if name != "topic_id"} for row in told])
    else:
        print_table(list(COLUMNS), [[row[name] for name in COLUMNS] for row in told])


@app.command("show", epilog="Example: fleetstream letters show g-00000000000000000000000000000001-0-17 --json")
def show_command(
    letter: str = typer.Argument(..., help="As `letters list` tells it."), as_json: bool = JSON_OPTION
) -> None:
    """One letter: its bytes, what can be read of them, why it cannot be sent, what was sent."""
    row, history = asyncio.run(_show(_dsn(), letter))
    data = bytes(row.pop("bytes"))
    opened = open_letter(data)
    shown_hex = "" if row["sealed"] else data.hex()
    told = {
        "id": letter, **{name: row[name] for name in ("kept_by", "device", "reason", "detail", "received_at")},
        "bytes_hex": shown_hex, "packet": shown(opened).model_dump(mode="json"),
        "obstacle": obstacle(row, opened, datetime.now(UTC)), "resubmissions": history,
    }  # fmt: skip
    if as_json:
        print_json(told)
        return
    readings = told["packet"].pop("readings")
    told["bytes_hex"] = shown_hex[: 2 * BYTES_SHOWN] + ("…" if len(shown_hex) > 2 * BYTES_SHOWN else "")
    for name, value in told.items():
        typer.echo(f"{name}: {'' if value is None else value}")
    columns = ["signal", "measured_at", "value", "unit", "quality"]
    print_table(columns, [[reading[name] for name in columns] for reading in readings])


@app.command("resubmit", epilog="Example: fleetstream letters resubmit g-00000000000000000000000000000001-0-17")
def resubmit_command(
    letter: str = typer.Argument(..., help="As `letters list` tells it."),
    shift_ms: int = typer.Option(0, "--shift-ms", help="Milliseconds to add to every time of the packet."),
    take_over: bool = typer.Option(False, "--take-over", help="The packet names another tenant: it is ours."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Send a letter into the log again; sent twice, it is stored once."""
    asked = Asked(read_id(letter), Repair(shift_ms, take_over), f"cli:{getpass.getuser()}", datetime.now(UTC))
    outcome = asyncio.run(_resubmit(_dsn(), asked))
    last = outcome.history[-1] if outcome.history else None
    if as_json:
        print_json({"sent": outcome.sent, "resubmissions": outcome.history})
    elif last is None or not outcome.sent:
        typer.echo("the store has it already; nothing was sent")
    else:
        typer.echo(f"sent to {last['sent_to']} as {last['device']} {last['boot_epoch']} {last['seq']}")


def _dsn() -> str:
    return open_stack(load_settings()).dsn(ROLE_SINK)


async def _open(dsn: str) -> psycopg.AsyncConnection[DictRow]:
    connection = await psycopg.AsyncConnection[DictRow].connect(dsn, row_factory=dict_row)
    await connection.execute("SET TIME ZONE 'UTC'")
    return connection


async def _list(dsn: str, chosen: LetterFilter, limit: int) -> list[DictRow]:
    async with await _open(dsn) as connection:
        return await list_letters(connection, chosen, limit)


async def _show(dsn: str, letter: str) -> tuple[dict[str, Any], list[DictRow]]:
    name = read_id(letter)
    async with await _open(dsn) as connection:
        return await require_letter(connection, name), await sent_again(connection, name)


async def _resubmit(dsn: str, asked: Asked) -> Outcome:
    async with await _open(dsn) as connection:
        return await resubmit(connection, asked)
