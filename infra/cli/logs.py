"""``fleetstream logs``: the last lines of one service or of all, and what comes."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from infra.cli.common import load_settings
from infra.errors import SetupError

POLL_S = 0.3
TAIL_BYTES = 256 * 1024
app = typer.Typer()


@app.command(epilog="Example: fleetstream logs gateway --lines 100 --follow")
def logs(
    service: str = typer.Argument("", help="One service; all when left out."),
    lines: int = typer.Option(20, "--lines", "-n", min=0, help="Last lines of each."),
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on until Ctrl-C."),
) -> None:
    """Print the services' logs, each line with the service's name."""
    folder = load_settings().home / "logs"
    files = sorted(folder.glob(f"{service or '*'}.log"))
    if not files:
        known = ", ".join(sorted(file.stem for file in folder.glob("*.log"))) or "none yet"
        raise SetupError(f"There is no log of {service or 'any service'} in {folder}; there are: {known}")
    ends = {file: file.stat().st_size for file in files}
    for file in files:
        for line in last_lines(file, lines):
            typer.echo(f"{file.stem:10} {line}")
    while follow:
        time.sleep(POLL_S)
        for file, end in ends.items():
            ends[file] = _print_from(file, end)


def last_lines(file: Path, count: int) -> list[str]:
    """The last ``count`` lines of a file, reading at most its last TAIL_BYTES."""
    with file.open("rb") as reader:
        reader.seek(max(0, file.stat().st_size - TAIL_BYTES))
        found = reader.read().decode(errors="replace").splitlines()
    return found[-count:] if count else []


def _print_from(file: Path, start: int) -> int:
    size = file.stat().st_size
    begin = start if size >= start else 0  # a rotated log starts anew
    with file.open("rb") as reader:
        reader.seek(begin)
        text = reader.read(size - begin)
    for line in text.decode(errors="replace").splitlines():
        typer.echo(f"{file.stem:10} {line}")
    return size
