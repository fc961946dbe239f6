"""``fleetstream rebuild``: the log once more, through the same code, into tables beside the live ones."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum

import typer

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.refilling import rebuilds_of

app = typer.Typer()


class Source(StrEnum):
    """Where raw records are read again."""

    kafka = "kafka"
    archive = "archive"


def progress(done: int, total: int) -> None:
    """One line on stderr, written over on a terminal."""
    share = 100 * done // max(1, total)
    if sys.stderr.isatty():
        typer.echo(f"\r{done} of {total} records ({share} %)", nl=done >= total, err=True)
    else:
        typer.echo(f"{done} of {total} records ({share} %)", err=True)


@app.command(epilog="Example: fleetstream rebuild --from archive --into v2")
def rebuild(
    source: Source = typer.Option(..., "--from", help="kafka: the log alone; archive: its files, then the log."),
    into: str = typer.Option(..., help="Name of the version: a schema of its own beside the live one."),
    since: datetime | None = typer.Option(None, help="Only what was received since then (UTC); for comparing."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Fill a version of the tables; run it again to go on after a kill, or to catch up."""
    moment = since.replace(tzinfo=since.tzinfo or UTC).astimezone(UTC) if since else None
    with rebuilds_of(open_stack(load_settings()), progress) as rebuilds:
        done = rebuilds.rebuild(into, source.value, moment)
    if as_json:
        print_json({"version": into, "source": source.value, "since": moment, "records": done.records,
                    "behind": done.behind})  # fmt: skip
    else:
        late = f", {done.behind} records behind the live tables" if done.behind else ""
        typer.echo(f"{into}: {done.records} records read{late}; see `fleetstream compare {into}`")
