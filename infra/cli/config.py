"""``fleetstream config check``: load every room's settings and name what is wrong."""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import typer
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from contracts.errors import FleetstreamError
from infra.cli.common import JSON_OPTION, print_json
from infra.settings import CONFIG_VARIABLE

ROOMS = ("edge_agent", "gateway", "stream_jobs", "api", "infra")
app = typer.Typer(help="Look at the settings.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong setting: which, why, and where it stands."""

    room: str
    key: str
    message: str
    where: str


@app.callback()
def group() -> None:
    """Look at the settings."""


@app.command(epilog="Example: FLEETSTREAM_CONFIG=fleetstream.toml fleetstream config check")
def check(as_json: bool = JSON_OPTION) -> None:
    """Check the settings file and the environment; exit 1 when one is wrong. What is merely unset is not wrong."""
    problems = [problem for room in ROOMS for problem in room_problems(room)]
    if as_json:
        print_json({"ok": not problems, "problems": [asdict(problem) for problem in problems]})
    for problem in [] if as_json else problems:
        typer.echo(f"{problem.where}: {problem.room}.{problem.key}: {problem.message}", err=True)
    if problems:
        raise typer.Exit(1)
    if not as_json:
        typer.echo("settings are sound")


def room_problems(room: str) -> list[Problem]:
    """What the room's own settings class says about the file and the environment."""
    if find_spec(room) is None or find_spec(f"{room}.settings") is None:
        return []  # this wheel does not bring the room
    try:
        settings_classes(room)[0]()
    except ValidationError as error:
        return [_problem(room, one["loc"], one["msg"]) for one in error.errors() if one["type"] != "missing"]
    except FleetstreamError as error:
        return [Problem(room, "", str(error), os.environ.get(CONFIG_VARIABLE, ""))]
    return []


def settings_classes(room: str) -> list[type[BaseSettings]]:
    """The settings classes that a room's ``settings`` module defines itself."""
    module = importlib.import_module(f"{room}.settings")
    found = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, BaseSettings)]
    return [one for one in found if one.__module__ == module.__name__]


def _problem(room: str, location: tuple[int | str, ...], message: str) -> Problem:
    parts = [str(part) for part in location]
    variable = "__".join(["FLEETSTREAM", room.upper(), *(part.upper() for part in parts)])
    if variable in os.environ:
        return Problem(room, ".".join(parts), message, variable)
    named = os.environ.get(CONFIG_VARIABLE)
    where = f"{named}:{line_of(Path(named).read_text(), room, parts)}" if named else "settings"
    return Problem(room, ".".join(parts), message, where)


def line_of(text: str, room: str, parts: list[str]) -> int:
    """Line number of a key in a TOML text, or of the table that should hold it, or 1."""
    table, best = "", 1
    tables = {".".join([room, *parts[:depth]]) for depth in range(len(parts))}
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[([^\]]+)\]", line)
        if header:
            table = header[1].strip()
            best = number if table in tables else best
        key = re.match(r"\s*([\w-]+)\s*=", line)
        if key and table in tables and key[1] == parts[-1]:
            return number
    return best
