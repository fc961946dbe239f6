"""``fleetstream doctor``: look at the machine and name each problem with its fix."""

from __future__ import annotations

from dataclasses import asdict

import typer

from infra.cli.common import JSON_OPTION, load_settings, print_json, print_table
from infra.diagnosis import diagnose

app = typer.Typer()


@app.command(epilog="Example: fleetstream doctor --json")
def doctor(as_json: bool = JSON_OPTION) -> None:
    """Check Python, Java, jars, broker, database, disk, ports and versions; exit 1 when one needs a fix."""
    findings = diagnose(load_settings())
    if as_json:
        print_json([asdict(one) for one in findings])
    else:
        print_table(["", "what", "found", "fix"], [[_mark(one.ok), one.what, one.found, one.fix] for one in findings])
    if not all(one.ok for one in findings):
        raise typer.Exit(1)


def _mark(ok: bool) -> str:
    return "ok" if ok else "FIX"
