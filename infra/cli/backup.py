"""``fleetstream backup create | verify | restore``: what only the store has, in a folder of files with hashes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import typer

from contracts.book import Page
from contracts.topics import Topics
from infra.backup import Backup, create, read_manifest, verify
from infra.backup_restore import restore_backup
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.errors import BackupRefused
from infra.migrate import create_roles
from infra.restore import read_book
from infra.rooms import Stack
from infra.state import read_state

SERVERS = {"postgres", "kafka", "mosquitto"}
FOLDER = typer.Argument(..., help="The backup's folder.")

app = typer.Typer(help="Back up the store, check a backup, bring it back.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Back up the store, check a backup, bring it back."""


@app.command("create", epilog="Example: fleetstream backup create /backups/monday --json")
def create_command(
    folder: Path = typer.Argument(..., help="A new folder; it will hold personal data and is readable by you only."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Write every table at one snapshot, beside running services, and the models' files."""
    stack = open_stack(load_settings())
    settings = stack.settings
    made = create(stack.superuser_dsn, settings.schema_name, folder, settings.home / "models", datetime.now(UTC))
    _tell(folder, made, as_json)


@app.command("verify", epilog="Example: fleetstream backup verify /backups/monday")
def verify_command(folder: Path = FOLDER, as_json: bool = JSON_OPTION) -> None:
    """Read every file of a backup and compare its SHA-256; needs no running stack. Exits 0 only if all are right."""
    _tell(folder, verify(folder), as_json)


@app.command("restore", epilog="Example: FLEETSTREAM__INFRA__SERVICES=false fleetstream up -d; "
             "fleetstream backup restore /backups/monday")  # fmt: skip
def restore_command(
    folder: Path = FOLDER,
    without_log: bool = typer.Option(False, help="The log is lost too: do not ask it, bring back the backup alone."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Fill an empty store from a backup; ingest then goes on in the log where the backup ends."""
    stack = open_stack(load_settings())
    settings, state = stack.settings, read_state(stack.settings.home)
    if state is not None and set(state.services) - SERVERS:
        raise BackupRefused(
            "services are running; nothing was changed: `fleetstream down`, start the servers alone with "
            "FLEETSTREAM__INFRA__SERVICES=false, restore, and start everything again"
        )
    bring: dict[str, int] = {}
    book: Iterable[Page] = ()
    if not without_log:
        bring = log_still_has(stack, read_manifest(folder))
        book = read_book(stack.bootstrap, Topics(settings.topic_prefix).book.name)
    create_roles(stack.superuser_dsn, stack.passwords)
    done = restore_backup(
        stack.superuser_dsn, settings.schema_name, folder, settings.home / "models", book, datetime.now(UTC)
    )
    if as_json:
        print_json({**asdict(done), "log_still_brings": None if without_log else bring})
        return
    typer.echo(
        f"restored {done.rows} rows of {done.tables} tables as of {done.made_at}, {done.models} models' files; "
        f"{done.registered_later} devices registered later came from the log"
    )
    for topic, records in sorted(bring.items()):
        typer.echo(f"the log still brings {records} records of {topic}")


def log_still_has(stack: Stack, made: Backup) -> dict[str, int]:
    """Records behind the backup, by topic. Raises BackupRefused when the log does not reach back to it."""
    from stream_jobs.errors import LogLost
    from stream_jobs.log import LogReader, lag, refuse_lost_store, starting_offsets

    if not made.positions:
        return {}
    log = LogReader(stack.bootstrap, sorted({one.topic for one in made.positions})).state()
    ledger = {(UUID(one.topic_id), one.partition): one.next_offset for one in made.positions}
    try:
        refuse_lost_store(log, ledger)
        starting_offsets(log, ledger)
    except LogLost as error:
        raise BackupRefused(
            f"log and backup do not meet, nothing was changed: {error}. Take a newer backup, or `fleetstream restore` "
            "for what archive and log hold; --without-log brings back the backup alone, and ingest will refuse to begin"
        ) from error
    return lag(log, ledger)


def _tell(folder: Path, made: Backup, as_json: bool) -> None:
    size_bytes = sum(one.size_bytes for one in made.files)
    if as_json:
        print_json(
            {"folder": str(folder), "made_at": made.made_at, "tables": len(made.tables), "rows": made.rows,
             "models": len(made.models), "archive_files_not_copied": made.archive_files, "bytes": size_bytes,
             "positions": [asdict(one) for one in made.positions]}
        )  # fmt: skip
        return
    typer.echo(
        f"{folder}: {made.rows} rows of {len(made.tables)} tables as of {made.made_at}, {len(made.models)} models' "
        f"files, {size_bytes} bytes; the archive's {made.archive_files} files are not in it"
    )
