"""``fleetstream drop``: remove a version's tables."""

from __future__ import annotations

import typer

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.versions import drop_version, one_at_a_time

app = typer.Typer()


@app.command(epilog="Example: fleetstream drop v2")
def drop(name: str = typer.Argument(..., help="Name of the version."), as_json: bool = JSON_OPTION) -> None:
    """Remove a version; the live tables cannot be dropped."""
    stack = open_stack(load_settings())
    with one_at_a_time(stack.superuser_dsn, name):
        size_bytes = drop_version(stack.superuser_dsn, stack.settings.schema_name, name)
    if as_json:
        print_json({"version": name, "bytes": size_bytes})
    else:
        typer.echo(f"dropped {name} ({size_bytes / 1_000_000:.1f} MB)")
