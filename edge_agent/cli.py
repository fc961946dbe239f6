"""``fleetstream-agent``: run the agent, look at it, look after its buffer.

Exit codes: 0 done, 1 the answer is bad (a damaged buffer), 2 the request or the configuration is wrong.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from contracts.errors import FleetstreamError
from edge_agent.buffer_tools import check_buffer, export_buffer, repair_buffer
from edge_agent.settings import AgentSettings, load_settings
from edge_agent.sources import CsvSource, Source, StdinSource
from edge_agent.wiring import FileJournal, build_agent, no_journal

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Measures, keeps safe, sends.")
buffer_app = typer.Typer(no_args_is_help=True, help="Look after the store-and-forward file.")
app.add_typer(buffer_app, name="buffer")
JSON = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]
SPOOL = Annotated[Path | None, typer.Option("--spool", help="The spool file; default: the one of the settings.")]


@app.command(epilog="Example: FLEETSTREAM_CONFIG=agent.toml fleetstream-agent run --csv drive.csv --speed 10")
def run(
    csv: Annotated[Path | None, typer.Option(help="Replay this recording (one column per catalogue path).")] = None,
    speed: Annotated[float, typer.Option(min=0.001, help="Recorded time is played this much faster.")] = 1.0,
    changed: Annotated[bool, typer.Option(help="Only cells that differ from the one above.")] = False,
    journal: Annotated[Path | None, typer.Option(help="Append the identity and hash of all accepted packets.")] = None,
    drain_s: Annotated[float, typer.Option(help="How long to wait for acknowledgements at the end.")] = 5.0,
) -> None:
    """Run until SIGTERM or Ctrl-C, or until a recording is told and acknowledged.

    Without --csv, readings come from standard input, one JSON array [path, at_ms, value] per line.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="time=%(asctime)s level=%(levelname)s %(message)s"
    )
    settings = load_settings()
    source: Source = CsvSource(csv, speed, "changed" if changed else "all") if csv else StdinSource(sys.stdin)
    history = FileJournal(journal) if journal else None
    stop = threading.Event()
    agent = build_agent(settings, source, journal=history or no_journal)

    def leave(_signal: int, _frame: FrameType | None) -> None:
        stop.set()
        agent.wake.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    try:
        agent.run(stop, int(drain_s * 1_000))
    finally:
        if history:
            history.close()


@app.command(epilog="Example: fleetstream-agent status --json")
def status(spool: SPOOL = None, as_json: JSON = False) -> None:
    """What this device holds and has not yet got acknowledged."""
    report = asdict(check_buffer(_spool_path(spool)))
    if as_json:
        print(json.dumps(report))
        return
    print(f"{report['file']}: {report['packets']} packets, {report['samples']} samples, {report['frame_bytes']} bytes")
    print(f"waiting by lane (0 live, 1 backlog, 2 priority): {report['lanes'] or 'none'}")
    print(f"dropped and not yet told: {report['drops_untold']} ranges; rejected: {report['rejected_packets']} packets")


@buffer_app.command("check", epilog="Example: fleetstream-agent buffer check --spool /var/lib/fleetstream/spool.db")
def check(spool: SPOOL = None, as_json: JSON = False) -> None:
    """Read every page and every frame; exit 1 when one is damaged."""
    report = check_buffer(_spool_path(spool))
    print(json.dumps(asdict(report)) if as_json else f"{report.file}: {report.verdict}, {report.packets} packets, "
          f"{report.damaged_frames} damaged frames")  # fmt: skip
    if not report.sound:
        print("repair it: fleetstream-agent buffer repair", file=sys.stderr)
        raise typer.Exit(1)


@buffer_app.command("export", epilog="Example: fleetstream-agent buffer export > readings.jsonl")
def export(spool: SPOOL = None) -> None:
    """Print every reading that waits, one JSON object per line."""
    for line in export_buffer(_spool_path(spool)):
        print(line)


@buffer_app.command("repair", epilog="Example: fleetstream-agent buffer repair --into repaired.db")
def repair(into: Annotated[Path, typer.Option(help="New file.")], spool: SPOOL = None, as_json: JSON = False) -> None:
    """Copy every readable frame into a new file; stop the agent, then put it in the old one's place."""
    saved = repair_buffer(_spool_path(spool), into)
    print(json.dumps({"saved_packets": saved, "file": str(into)}) if as_json else f"{into}: {saved} packets saved")


def _spool_path(given: Path | None) -> Path:
    return given or _settings().spool.path


def _settings() -> AgentSettings:
    return load_settings()


def main() -> None:
    """Console entry: errors of ours become one sentence and exit code 2."""
    try:
        app()
    except FleetstreamError as error:
        print(f"fleetstream-agent: {error}", file=sys.stderr)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
