"""``fleetstream store maintain``: rows to blocks, retention, partitions."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import typer

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.history import keep_history

app = typer.Typer(help="Look after the store.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look after the store."""


@app.command("maintain", epilog="Example: fleetstream store maintain --json")
def maintain_command(as_json: bool = JSON_OPTION) -> None:
    """Compact older packets into blocks, apply the retention of each class, keep partitions (`up` does all of it)."""
    done = keep_history(open_stack(load_settings()), datetime.now(UTC))
    if as_json:
        print_json(asdict(done))
    elif done.busy:
        typer.echo("another round is at work; nothing was done")
    else:
        typer.echo(
            f"compacted {done.compacted_packets} packets ({done.compacted_samples} samples) into {done.blocks} blocks; "
            f"expired {done.expired_blocks} blocks; created {len(done.created)}, dropped {len(done.dropped)} partitions"
        )
