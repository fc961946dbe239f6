"""``fleetstream restore``: a lost store made again from the archive and the log."""

from __future__ import annotations

from dataclasses import asdict

import typer

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.cli.rebuild import progress
from infra.errors import RebuildRefused
from infra.refilling import make_restore, rebuilds_of
from infra.restore import LOST_FOR_GOOD
from infra.state import read_state

WRITERS = {"ingest", "archive"}

app = typer.Typer()


@app.command("restore", epilog="Example: FLEETSTREAM__INFRA__SERVICES=false fleetstream up -d; fleetstream restore")
def command(as_json: bool = JSON_OPTION) -> None:
    """Fill an empty store: who is registered, and every packet, with the keys and hashes that they had."""
    settings = load_settings()
    stack = open_stack(settings)
    state = read_state(settings.home)
    if state is not None and WRITERS & set(state.services):
        raise RebuildRefused(
            "ingest and archive are running; nothing was changed: `fleetstream down`, start the servers alone with "
            "FLEETSTREAM__INFRA__SERVICES=false, restore, and start everything again"
        )
    with rebuilds_of(stack, progress, f"{settings.schema_name}_restored") as rebuilds:
        done = make_restore(stack, rebuilds).run()
    if as_json:
        print_json({**asdict(done), "not_restored": LOST_FOR_GOOD})
    else:
        typer.echo(
            f"restored {done.devices} devices, {done.packets} packets ({done.packet_rows} of them within retention), "
            f"{done.samples} samples, {done.windows} windows; digest {done.digest}"
        )
        for one in LOST_FOR_GOOD:
            typer.echo(f"not restored: {one}")
