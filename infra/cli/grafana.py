"""``fleetstream grafana``: bring the boards to a Grafana server, or see what differs there."""

from __future__ import annotations

from pathlib import Path

import typer

from dashboards.grafana.boards import BOARDS
from dashboards.grafana.sync import Change, Server, plan, sync
from infra.cli.common import JSON_OPTION, print_json
from infra.errors import SetupError

app = typer.Typer(help="Grafana boards: sync, and see what differs.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Grafana boards: sync, and see what differs."""


@app.command(
    "sync", epilog="Example: fleetstream grafana sync --url http://127.0.0.1:3000 --token-file token --dry-run"
)
def sync_command(
    url: str = typer.Option(..., help="Address of the server."),
    token_file: Path = typer.Option(..., help="File with a service account's token (role Editor)."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Write nothing; exit 1 when something differs."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Also replace boards that were edited on the server."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Write our boards to a Grafana server, by uid. Boards edited there are told, and kept unless --overwrite."""
    try:
        server = Server(url, token_file.read_text(encoding="utf-8").strip())
    except OSError as error:
        raise SetupError(f"{token_file} cannot be read ({error.strerror}); nothing was written") from error
    boards = [make() for make in BOARDS]
    changes = plan(boards, server) if dry_run else sync(boards, server, overwrite=overwrite)
    if as_json:
        print_json([{"uid": c.uid, "title": c.title, "state": c.state, "places": list(c.places)} for c in changes])
    else:
        for change in changes:
            typer.echo(_sentence(change, dry_run, overwrite))
    left = [c for c in changes if c.state == "differs" and not overwrite]
    if left or (dry_run and any(c.state != "same" for c in changes)):
        raise typer.Exit(1)


def _sentence(change: Change, dry_run: bool, overwrite: bool) -> str:
    if change.state == "same":
        return f"same      {change.title}"
    if change.state == "new":
        return f"{'missing' if dry_run else 'written':9} {change.title}"
    verb = "replaced" if overwrite and not dry_run else "differs"
    return f"{verb:9} {change.title}: {', '.join(change.places)}"
