"""What commands share: settings, the running stack, output."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from infra.ca import DevelopmentCa
from infra.errors import SetupError
from infra.rooms import Stack
from infra.settings import InfraSettings
from infra.state import read_state
from infra.wiring import build_stack

JSON_OPTION = typer.Option(False, "--json", help="Print JSON instead of a table.")
EXIT_NOT_UP = 3


def load_settings() -> InfraSettings:
    """Raises SetupError naming the key that is wrong."""
    try:
        return InfraSettings()
    except ValueError as error:
        raise SetupError(f"The settings are wrong; run `fleetstream config check`: {error}") from error


def open_stack(settings: InfraSettings) -> Stack:
    """How to reach the stack that runs now; a user's own PostgreSQL needs none to run. Exits with 3 otherwise."""
    state = read_state(settings.home)
    if state is not None:
        return build_stack(settings, state.ports)
    if settings.postgres_dsn is None:
        not_up(settings)
    return build_stack(settings, settings.ports.model_dump())


def not_up(settings: InfraSettings) -> NoReturn:
    typer.echo(f"fleetstream: No stack is up in {settings.home}; start it with `fleetstream up --detach`", err=True)
    raise typer.Exit(EXIT_NOT_UP)


def authority(settings: InfraSettings) -> DevelopmentCa:
    """The development CA of this runtime directory."""
    return DevelopmentCa(settings.home / "ca")


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, default=str, ensure_ascii=False))


def print_table(columns: list[str], rows: list[list[Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else escape(str(value)) for value in row))
    Console().print(table)
