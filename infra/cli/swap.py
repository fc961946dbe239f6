"""``fleetstream swap``: a version takes the live place in one transaction, while everything runs."""

from __future__ import annotations

from dataclasses import asdict

import typer

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.cli.rebuild import progress
from infra.refilling import rebuilds_of
from infra.swap import swap

app = typer.Typer()


@app.command("swap", epilog="Example: fleetstream swap v2")
def command(name: str = typer.Argument(..., help="Name of the version."), as_json: bool = JSON_OPTION) -> None:
    """Exchange the live tables with the version's; the same command brings the old ones back."""
    with rebuilds_of(open_stack(load_settings()), progress) as rebuilds:
        done = swap(rebuilds, name)
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(
            f"{name} is live; writers waited {done.writers_waited_ms} ms, readers {done.readers_waited_ms} ms at most; "
            f"{done.windows_to_say_again} windows differ and are published again"
        )
        typer.echo(f"{name} now names the old tables: `fleetstream drop {name}` removes them")
