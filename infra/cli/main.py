"""The menu of commands, and how every one of them ends.

Exit codes: 0 done, 1 it failed (one sentence on stderr says why and what to do), 2 wrong usage, 3 the stack is
not up or not healthy, 130 interrupted. ``NO_COLOR`` is honoured.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from contracts.errors import FleetstreamError

MENU = (
    ("up", "infra.cli.up"),
    ("down", "infra.cli.down"),
    ("status", "infra.cli.status"),
    ("logs", "infra.cli.logs"),
    ("doctor", "infra.cli.doctor"),
    ("demo", "infra.cli.demo"),
    ("replay", "infra.cli.replay"),
    ("ledger", "infra.cli.ledger"),
    ("reconcile", "infra.cli.reconcile"),
    ("sql", "infra.cli.sql"),
    ("ask", "infra.cli.ask"),
    ("facts", "infra.cli.facts"),
    ("edr", "infra.cli.edr"),
    ("migrate", "infra.cli.migrate"),
    ("store", "infra.cli.store"),
    ("rebuild", "infra.cli.rebuild"),
    ("compare", "infra.cli.compare"),
    ("swap", "infra.cli.swap"),
    ("drop", "infra.cli.drop"),
    ("restore", "infra.cli.restore"),
    ("backup", "infra.cli.backup"),
    ("latest", "infra.cli.latest"),
    ("device", "infra.cli.device"),
    ("import", "infra.cli.import_fleet"),
    ("letters", "infra.cli.letters"),
    ("command", "infra.cli.command"),
    ("alerts", "infra.cli.alerts"),
    ("models", "infra.cli.models"),
    ("tenant", "infra.cli.tenant"),
    ("key", "infra.cli.key"),
    ("grafana", "infra.cli.grafana"),
    ("score", "infra.cli.score"),
    ("config", "infra.cli.config"),
)
"""Name and module; a module is imported when its command is asked for and offers ``app``."""

EXIT_FAILED = 1
EXIT_NOT_UP = 3
EXIT_INTERRUPTED = 130


class Menu(TyperGroup):
    """Finds commands in MENU, so that `fleetstream --version` or `status` never import Spark or Kafka."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, _ in MENU]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = dict(MENU).get(cmd_name)
        if module is None:
            return None
        command = get_command(importlib.import_module(module).app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=Menu,
    name="fleetstream",
    help="Fleet telemetry that never loses or doubles a reading, and can prove it.",
    epilog="Example: fleetstream up --detach && fleetstream status",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what happens to stderr.")) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose or os.environ.get("FLEETSTREAM_LOG") == "info" else logging.WARNING,
        format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
        stream=sys.stderr,
    )


def main() -> None:
    """Entry point: known errors become one sentence and an exit code."""
    try:
        app()
    except FleetstreamError as error:
        print(f"fleetstream: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
