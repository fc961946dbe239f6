"""``fleetstream replay``: recorded drives through the real agent and the whole line, every value once."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import psycopg
import typer

from infra.cli.common import load_settings, open_stack, print_json
from infra.enrol import Enrolment
from infra.errors import ServiceFailed, SetupError
from infra.fleets import broker_of, enrol_devices
from infra.proof import Proof, prove
from infra.rooms import Stack, reader_dsn
from simulators.kit_obd import Values
from simulators.replay import Credential, Drive, Replay, begin, forget, history_of, plan_drives
from simulators.settings import load_settings as load_simulator_settings

EXIT_INTERRUPTED = 130
STALLED_S = 180.0
"""Without a newly stored packet for this long the line is taken for stuck."""
LINE_S = 1.0
VALUES = ("all", "changed")

app = typer.Typer()


@app.command(epilog="Example: fleetstream replay drives/*.csv.gz --speed 200 --values changed")
def replay(
    files: list[Path] = typer.Argument(..., help="Recordings: YYYY-MM-DD_name.csv.gz; one file is one asset."),
    speed: float = typer.Option(1.0, min=0.001, help="Recorded time over real time, as far as the line keeps up."),
    values: str = typer.Option("all", help="all: each non-empty cell; changed: each that differs from the one above."),
    resume: bool = typer.Option(False, "--resume", help="Go on where a stopped or killed replay was."),
    fresh: bool = typer.Option(False, "--fresh", help="Begin anew; refused when the store holds packets of a file."),
    tenant: str = typer.Option("recordings", help="Who owns the assets."),
) -> None:
    """Send recordings; ends when everything is acknowledged and stored, with one JSON object."""
    if values not in VALUES:
        raise typer.BadParameter(f"{values!r} is none of {', '.join(VALUES)}", param_hint="--values")
    counted = cast(Values, values)
    settings = load_settings()
    stack = open_stack(settings)
    stop = threading.Event()
    _obey(stop)
    drives = plan_drives(files, settings.home / "replay")
    if fresh:
        _begin_anew(stack, drives)
    for drive in drives:
        begin(drive, counted, resume)
    begun_s = time.monotonic()
    enrol_devices(stack, [Enrolment(one.device, tenant, one.device, "car", "recording") for one in drives], stop.is_set)
    _send(stack, drives, tenant, speed, counted, stop)
    proof = _until_stored(stack, drives, stop)
    print_json(_summary(drives, proof, counted, time.monotonic() - begun_s))
    if not proof.complete:
        raise typer.Exit(1)


def _send(
    stack: Stack, drives: Sequence[Drive], tenant: str, speed: float, values: Values, stop: threading.Event
) -> None:
    """Run the agents to the end of every recording, acknowledged."""
    credentials = []
    for drive in drives:
        files = stack.authority.client(drive.device)
        credentials.append(Credential(files.certificate, files.key))
    running = Replay(drives, credentials, tenant, broker_of(stack), speed, values, load_simulator_settings())
    running.start()
    try:
        while not running.wait(LINE_S):
            _say(
                f"accepted {running.accepted_samples:>10,} samples  rows read {running.rows:>8,}"
                f"  recordings on their way {running.running}"
            )
            if stop.is_set():
                _say("\nstopped; what was accepted is in the spools; the same command with --resume goes on")
                raise typer.Exit(EXIT_INTERRUPTED)
    finally:
        running.close()


def _until_stored(stack: Stack, drives: Sequence[Drive], stop: threading.Event) -> Proof:
    """Compare with the store until all is there; gives up when nothing moves for STALLED_S."""
    history, dsn = history_of(drives), reader_dsn(stack)
    proof, moved_s = prove(history, dsn), time.monotonic()
    while proof.lost and not stop.wait(LINE_S):
        newer = prove(history, dsn)
        if newer.stored_packets > proof.stored_packets:
            moved_s = time.monotonic()
        proof = newer
        _say(f"acknowledged; stored {proof.stored_packets:,} of {proof.accepted_packets:,} packets")
        if time.monotonic() - moved_s > STALLED_S:
            raise ServiceFailed(
                f"{len(proof.lost)} acknowledged packets have not reached the store within {STALLED_S:.0f} s; they are "
                "in Kafka; `fleetstream status` and `fleetstream logs ingest` tell why"
            )
    return proof


def _begin_anew(stack: Stack, drives: Sequence[Drive]) -> None:
    devices = [drive.device for drive in drives]
    with psycopg.connect(reader_dsn(stack)) as connection:
        known = connection.execute(
            "SELECT DISTINCT device FROM packets WHERE device = ANY(%s) ORDER BY device", (devices,)
        ).fetchall()
    if known:
        raise SetupError(
            f"The store holds packets of {known[0][0]}, so a fresh replay would store its values twice; nothing was "
            "sent; leave --fresh out, or empty the store first"
        )
    for drive in drives:
        forget(drive)


def _summary(drives: Sequence[Drive], proof: Proof, values: str, seconds: float) -> dict[str, Any]:
    samples: Counter[str] = Counter()
    for packet in history_of(drives).values():
        samples[packet.device] += packet.samples
    return {
        "files": len(drives),
        "values": values,
        "accepted": proof.accepted_samples,
        "stored": proof.stored_samples,
        "lost": proof.lost_samples,
        "doubled": proof.doubled_samples,
        "accepted_packets": proof.accepted_packets,
        "stored_packets": proof.stored_packets,
        "lost_packets": len(proof.lost),
        "doubled_packets": len(proof.doubled),
        "altered": len(proof.altered),
        "foreign": len(proof.foreign),
        "seconds": round(seconds, 1),
        "assets": {drive.device: samples[drive.device] for drive in drives},
    }


def _obey(stop: threading.Event) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def _say(text: str) -> None:
    """A progress line that overwrites itself on a terminal."""
    live = sys.stderr.isatty()
    print(f"\r{text}" if live else text, end="" if live else "\n", file=sys.stderr, flush=True)
