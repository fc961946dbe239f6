"""``fleetstream down``: stop the stack of this runtime directory."""

from __future__ import annotations

import os
import signal
import time

import typer

from infra.cli.common import load_settings
from infra.errors import ServiceFailed
from infra.processes import running
from infra.state import read_state

STOP_TIMEOUT_S = 180.0
POLL_S = 0.1
app = typer.Typer()


@app.command(epilog="Example: fleetstream down")
def down() -> None:
    """Stop everything that `up` started, in reverse order; data stays."""
    settings = load_settings()
    state = read_state(settings.home)
    if state is None:
        typer.echo("nothing is up")
        return
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while read_state(settings.home) is not None or running(state.pid):
        if time.monotonic() > deadline:
            raise ServiceFailed(
                f"The supervisor (process {state.pid}) did not end within {STOP_TIMEOUT_S:.0f} s; see logs"
            )
        time.sleep(POLL_S)
    typer.echo("down; data and spools are kept")
