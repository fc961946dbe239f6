"""``fleetstream compare``: a version against the live tables, row by row, at the same position of the log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.cli.rebuild import progress
from infra.compare import TableResult
from infra.refilling import rebuilds_of

EXIT_DIFFERENT = 1
COLUMNS = ["table", "live rows", "rebuilt rows", "only live", "only rebuilt", "changed"]

app = typer.Typer()


@app.command(epilog="Example: fleetstream compare v2 --rows 20 --json")
def compare(
    name: str = typer.Argument(..., help="Name of the version."),
    rows: int = typer.Option(10, min=0, help="Of the rows that differ, how many to show per table."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show what differs; exit code 1 when anything does."""
    with rebuilds_of(open_stack(load_settings()), progress) as rebuilds:
        results = rebuilds.compare(name, rows)
    if as_json:
        print_json({"version": name, "equal": not any(one.differences for one in results),
                    "tables": [asdict(one) for one in results]})  # fmt: skip
    else:
        _show(results)
    if any(one.differences for one in results):
        raise typer.Exit(EXIT_DIFFERENT)


def _show(results: list[TableResult]) -> None:
    counts: list[list[Any]] = [
        [one.table, one.live_rows, one.rebuilt_rows, one.only_live, one.only_rebuilt, one.changed] for one in results
    ]
    print_table(COLUMNS, counts)
    for one in results:
        for difference in one.first:
            key = " ".join(f"{name}={value}" for name, value in difference.key.items())
            typer.echo(f"{one.table}: {key}\n  live    {difference.live}\n  rebuilt {difference.rebuilt}")
    if not any(one.differences for one in results):
        typer.echo("equal")
