"""``fleetstream facts``: say which fleet, model and driver vehicles have, what they may carry and should consume.

Exit codes: 0 written (or could be, with --dry-run), 1 refused: nothing was changed.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import typer

from contracts.tables import ROLE_SINK
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.facts import COLUMNS, read_facts, write_facts

app = typer.Typer(help="What is known of vehicles beside their names.")


@app.command(epilog="Example: fleetstream facts trucks.csv --tenant north --dry-run")
def facts(
    file: Path = typer.Argument(..., exists=True, dir_okay=False, help="CSV with the columns " + ", ".join(COLUMNS)),
    tenant: str = typer.Option(..., help="Whose vehicles they are."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check everything, change nothing."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Write facts of vehicles from a CSV file: all lines or none; empty cells leave what is known."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        found = read_facts(lines)
    dsn = open_stack(load_settings()).dsn(ROLE_SINK)
    with psycopg.connect(dsn, autocommit=True) as connection, connection.transaction(force_rollback=dry_run):
        count = write_facts(connection, tenant, found)
    if as_json:
        print_json({"assets": count, "written": not dry_run})
    else:
        typer.echo(f"{count} assets {'could be' if dry_run else 'were'} written")
