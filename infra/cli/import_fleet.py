"""``fleetstream import``: a fleet from a CSV file, all of it or nothing.

Exit codes: 0 imported, or (with --dry-run) it could be; 1 the file has errors and nothing was changed.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import typer

from api.imports import IMPORT, MOST_BYTES, LineError, read_fleet, told
from api.imports import as_json as rows_of
from contracts.names import check_name
from contracts.tables import ROLE_SINK
from infra.cli.common import JSON_OPTION, authority, load_settings, open_stack, print_json
from infra.errors import SetupError

SHOWN = 20
MAKE_TENANT = """
WITH made AS (INSERT INTO tenants (name) VALUES (%(name)s) ON CONFLICT DO NOTHING RETURNING tenant_id)
SELECT tenant_id, true FROM made UNION ALL SELECT tenant_id, false FROM tenants WHERE name = %(name)s"""
TELL_TENANT = "SELECT tell_book(%(tenant)s, ARRAY['tenants/' || %(tenant)s])"

app = typer.Typer(help="Enrol a whole fleet from a CSV file.", add_completion=False)


@app.command(epilog="Example: fleetstream import fleet.csv --tenant north --dry-run")
def import_command(
    file: Path = typer.Argument(..., exists=True, dir_okay=False, help="CSV with the columns device, asset, …"),
    tenant: str = typer.Option(..., help="Whose fleet it is; created when new."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would happen and change nothing."),
    certificates: bool = typer.Option(False, "--certificates", help="Issue each device's certificate too."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Enrol devices, assets, bindings and groups; the same file again changes nothing."""
    settings = load_settings()
    check_name("tenant", tenant)
    if file.stat().st_size > MOST_BYTES:
        raise SetupError(f"{file} is larger than {MOST_BYTES} bytes; nothing was changed: split it")
    lines, errors = read_fleet(file.read_bytes())
    counts: dict[str, int] = {}
    stack = open_stack(settings)
    if not errors:
        report = _import(stack.dsn(ROLE_SINK), tenant, rows_of(lines), dry_run)
        errors, counts = told(report), report["counts"]
    if certificates and not errors and not dry_run:
        for line in lines:
            authority(settings).client(line.device)
    _show(errors, counts, dry_run, as_json)
    if errors:
        raise typer.Exit(1)


def _import(dsn: str, tenant: str, rows: str, dry_run: bool) -> dict[str, Any]:
    with psycopg.connect(dsn) as connection:
        tenant_id, is_new = connection.execute(MAKE_TENANT.encode(), {"name": tenant}).fetchone() or (0, False)
        if is_new:
            connection.execute(TELL_TENANT.encode(), {"tenant": tenant_id})
        values = {"tenant": tenant_id, "rows": rows, "dry_run": dry_run}
        row = connection.execute(IMPORT.encode(), values).fetchone()
        report: dict[str, Any] = row[0] if row else {}
        if dry_run or report["errors"]:
            connection.rollback()
    return report


def _show(errors: list[LineError], counts: dict[str, int], dry_run: bool, json_wanted: bool) -> None:
    if json_wanted:
        print_json({"dry_run": dry_run, "accepted": not errors, **counts, "errors": [asdict(one) for one in errors]})
        return
    for one in errors[:SHOWN]:
        typer.echo(f"line {one.line}, {one.column or 'file'}: {one.detail} ({one.reason})", err=True)
    if errors:
        more = f", {len(errors) - SHOWN} more are not shown" if len(errors) > SHOWN else ""
        typer.echo(f"nothing was changed: {len(errors)} errors{more}", err=True)
        return
    made = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
    typer.echo(f"{'would be: ' if dry_run else ''}{made}")
