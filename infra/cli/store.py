"""``fleetstream store maintain``: keep the packet partitions."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import typer

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.migrate import maintain

app = typer.Typer(help="Look after the store.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look after the store."""


@app.command("maintain", epilog="Example: fleetstream store maintain --json")
def maintain_command(as_json: bool = JSON_OPTION) -> None:
    """Create the coming days' partitions and drop those past retention (`up` does it daily)."""
    settings = load_settings()
    stack = open_stack(settings)
    done = maintain(stack.superuser_dsn, settings.schema_name, datetime.now(UTC), settings.retention_days)
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(f"created {len(done.created)}, dropped {len(done.dropped)} partitions")
