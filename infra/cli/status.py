"""``fleetstream status``: what runs and since when."""

from __future__ import annotations

from dataclasses import asdict

import typer

from infra.cli.common import EXIT_NOT_UP, JSON_OPTION, load_settings, not_up, print_json, print_table
from infra.state import read_state

app = typer.Typer()


@app.command(epilog="Example: fleetstream status --json")
def status(as_json: bool = JSON_OPTION) -> None:
    """Show every service with its state, process, restarts and log; exit 3 when one is not ready."""
    settings = load_settings()
    state = read_state(settings.home)
    if state is None:
        if as_json:
            print_json({"up": False, "home": str(settings.home)})
        not_up(settings)
    if as_json:
        print_json({"up": True, "ready": state.ready, "home": str(settings.home), **asdict(state)})
    else:
        rows = [[name, one.state, one.pid, one.restarts, one.log] for name, one in state.services.items()]
        print_table(["service", "state", "pid", "restarts", "log"], rows)
        typer.echo(f"page and API: http://127.0.0.1:{state.ports['api']}/")
    if not state.ready:
        raise typer.Exit(EXIT_NOT_UP)
