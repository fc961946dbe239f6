"""``fleetstream latest``: the newest value of every signal, as a table and as a compacted topic.

Exit codes: 0 equal or rebuilt, 1 they differ.
"""

from __future__ import annotations

import typer

from contracts.tables import ROLE_SINK
from contracts.topics import Topics
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.errors import SetupError
from infra.latest import rebuild_table, rebuild_topic, verify

app = typer.Typer(help="Compare and rebuild the latest values.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Compare and rebuild the latest values."""


@app.command("verify", epilog="Example: fleetstream latest verify --json")
def verify_command(as_json: bool = JSON_OPTION) -> None:
    """Whether topic and table say the same of every signal; works beside live traffic."""
    settings = load_settings()
    stack = open_stack(settings)
    found = verify(stack.dsn(ROLE_SINK), stack.bootstrap, Topics(settings.topic_prefix).latest)
    told = found.as_json()
    if as_json:
        print_json(told)
    else:
        typer.echo(" ".join(f"{name}={value}" for name, value in told.items() if name != "keys"))
        for key in told["keys"]:
            typer.echo(f"differs: {key}")
    if not found.equal:
        raise typer.Exit(1)


@app.command("rebuild", epilog="Example: fleetstream latest rebuild --table")
def rebuild_command(
    table: bool = typer.Option(False, "--table", help="The table from the topic; newer rows stay."),
    topic: bool = typer.Option(False, "--topic", help="The topic from the table; what is not in it goes."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Make one of the two from the other; beside live traffic. From the raw log: `fleetstream rebuild --from kafka`."""
    if table == topic:
        raise SetupError("Say which one is to be made: --table or --topic; nothing was changed")
    settings = load_settings()
    stack = open_stack(settings)
    make = rebuild_table if table else rebuild_topic
    read, written = make(stack.dsn(ROLE_SINK), stack.bootstrap, Topics(settings.topic_prefix).latest)
    if table:
        told = {"records": read, "rows_written": written}
    else:
        told = {"rows_to_tell": read, "records_to_remove": written}
    print_json(told) if as_json else typer.echo(" ".join(f"{name}={value}" for name, value in told.items()))
