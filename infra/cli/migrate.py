"""``fleetstream migrate``: bring the store's schema to this version."""

from __future__ import annotations

import typer

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.migrate import create_roles, migrate, read_migrations

app = typer.Typer()


@app.command("migrate", epilog="Example: fleetstream migrate --json")
def command(as_json: bool = JSON_OPTION) -> None:
    """Apply the migrations that are missing; repeatable, refuses changed files."""
    settings = load_settings()
    stack = open_stack(settings)
    create_roles(stack.superuser_dsn, stack.passwords)
    applied = migrate(stack.superuser_dsn, settings.schema_name)
    known = [migration.name for migration in read_migrations()]
    if as_json:
        print_json({"schema": settings.schema_name, "applied": applied, "known": known})
    else:
        typer.echo(f"applied: {', '.join(applied)}" if applied else f"up to date ({known[-1]})")
