"""``fleetstream ask``: the fleet questions at the command line.

Exit codes: 0 answered, 1 the question cannot be answered so.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from datetime import UTC, datetime
from typing import Any

import psycopg
import typer

from api.errors import BadQuestion, NotFound
from api.fleet.asking import Parameters, ask, find_question
from api.fleet.base import Found
from api.fleet.menu import QUESTIONS
from api.queries.pool import Store
from api.settings import ApiSettings
from api.shapes_questions import answered, describe
from contracts.tables import ROLE_API
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.errors import SetupError
from infra.rooms import Stack, reader_dsn

app = typer.Typer(help="Ask fleet questions.")


@app.command(epilog="Example: fleetstream ask low-fuel --fleet East --threshold 15 --json")
def ask_command(
    name: str | None = typer.Argument(None, help="Name of the question; none: list them."),
    tenant: str | None = typer.Option(None, help="Whose vehicles; needed when there are several tenants."),
    fleet: str | None = typer.Option(None, help="Only this fleet."),
    asset: str | None = typer.Option(None, help="Only this vehicle."),
    start: datetime | None = typer.Option(None, "--from", help="Begin of the range (UTC)."),
    end: datetime | None = typer.Option(None, "--to", help="End of the range (UTC), exclusive."),
    threshold: float | None = typer.Option(None, help="Another limit than the question's own."),
    max_age_s: float | None = typer.Option(None, "--max-age", min=0.001, help="Older values are no answer, s."),
    as_json: bool = JSON_OPTION,
    as_csv: bool = typer.Option(False, "--csv", help="Print CSV instead of a table."),
) -> None:
    """Answer one of the fleet questions, or list them with what they mean."""
    if name is None:
        _list(as_json)
        return
    said = Parameters(fleet, asset, _utc(start), _utc(end), threshold, max_age_s)
    body = _answer(name, said, open_stack(load_settings()), tenant)
    if as_json:
        print_json(body)
        return
    names = [column["name"] for column in body["columns"]]
    rows = [[item[one] for one in names] for item in body["items"]]
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([["" if cell is None else _safe(cell) for cell in row] for row in rows])
        return
    heads = [f"{one['name']} ({one['unit']})" if one["unit"] else one["name"] for one in body["columns"]]
    print_table(heads, [[_shown(cell) for cell in row] for row in rows])
    told = {"from": body["from"], "to": body["to"], **body["counted"]}
    typer.echo(" ".join(f"{key}={value}" for key, value in told.items() if value is not None), err=True)


def _list(as_json: bool) -> None:
    if as_json:
        print_json({"items": [describe(one) for one in QUESTIONS]})
    else:
        print_table(["name", "asks"], [[one.name, one.words.asks] for one in QUESTIONS])


def _answer(name: str, said: Parameters, stack: Stack, tenant: str | None) -> dict[str, Any]:
    """Raises SetupError with what is wrong about the question."""
    try:
        question = find_question(name)
        longest_s = ApiSettings.model_fields["windows_range_s"].default
        asked, _ = ask(question, said, datetime.now(UTC), longest_s)
    except (BadQuestion, NotFound) as error:
        raise SetupError(error.detail) from error
    tenant_id = _tenant_id(reader_dsn(stack), tenant)

    async def answer() -> Found:
        store = Store(stack.dsn(ROLE_API), 1, 10.0, 60_000)
        await store.open()
        try:
            async with store.transaction(tenant_id) as connection:
                return await question.answer(connection, asked)
        finally:
            await store.close()

    found = asyncio.run(answer())
    return answered(question, asked, found, found.rows, None)


def _tenant_id(dsn: str, tenant: str | None) -> int:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT tenant_id, name FROM tenants WHERE %(name)s::text IS NULL OR name = %(name)s ORDER BY name",
            {"name": tenant},
        ).fetchall()
    if not rows:
        raise SetupError(f"There is no tenant {tenant}" if tenant else "There is no tenant yet; enrol a device first")
    if len(rows) > 1:
        raise SetupError("Say whose vehicles with --tenant: " + ", ".join(row[1] for row in rows))
    return int(rows[0][0])


def _shown(cell: object) -> object:
    """Shorter numbers."""
    return round(cell, 3) if isinstance(cell, float) else cell


def _safe(cell: object) -> object:
    """A spreadsheet would run text that begins like a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.replace(tzinfo=at.tzinfo or UTC)
