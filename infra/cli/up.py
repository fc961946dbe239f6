"""``fleetstream up``: start the stack and watch over it."""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

import typer

from infra.cli.common import load_settings
from infra.errors import AlreadyUp, ServiceFailed
from infra.processes import Child, Command, wait_ready
from infra.selfwatch import self_watched
from infra.session import open_session
from infra.settings import InfraSettings
from infra.state import read_state
from infra.supervisor import Supervisor
from infra.wiring import DailyMaintenance

FIRST_START_S = 900.0
"""A first start downloads about 60 MB of jars and a broker."""

app = typer.Typer()


@app.command(epilog="Example: fleetstream up --detach")
def up(
    detach: bool = typer.Option(False, "--detach", "-d", help="Return when everything is ready; `down` stops it."),
) -> None:
    """Start PostgreSQL, Kafka, MQTT, gateway, Spark and API; Ctrl-C stops it all."""
    settings = load_settings()
    if detach:
        _detached(settings)
        return
    begun = time.monotonic()
    with open_session(settings) as session:
        _obey_signals(session.supervisor)
        typer.echo("starting (the first time fetches about 60 MB)", err=True)
        session.supervisor.start()
        report(session.supervisor, time.monotonic() - begun)
        typer.echo(f"up: http://127.0.0.1:{session.stack.ports['api']}/ (Ctrl-C stops everything)")
        with self_watched(session):
            session.supervisor.run(DailyMaintenance(session.stack))
        typer.echo("stopping", err=True)


def report(supervisor: Supervisor, seconds: float) -> None:
    """Where the time of a start went, slowest service last."""
    for name, steps in sorted(supervisor.timings().items(), key=lambda item: sum(item[1].values())):
        typer.echo(f"  {name:10} " + "  ".join(f"{step} {value:5.1f} s" for step, value in steps.items()), err=True)
    typer.echo(f"ready after {seconds:.1f} s", err=True)


def _obey_signals(supervisor: Supervisor) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        supervisor.request_stop()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def _detached(settings: InfraSettings) -> None:
    if read_state(settings.home) is not None:
        raise AlreadyUp(f"The stack in {settings.home} is already up; see `fleetstream status`")
    log_file = settings.home / "logs" / "supervisor.log"
    child = Child(Command("supervisor", [sys.executable, "-m", "infra", "-v", "up"], log_file))
    try:
        wait_ready(child, lambda: _is_ready(settings, child.pid), FIRST_START_S)
    except ServiceFailed as error:
        child.stop()
        raise ServiceFailed(_reason(log_file.read_text(errors="replace")) or str(error)) from error
    except BaseException:
        child.stop()
        raise
    typer.echo(f"up: see `fleetstream status`; log in {log_file}")


def _is_ready(settings: InfraSettings, pid: int) -> bool:
    state = read_state(settings.home)
    return state is not None and state.pid == pid and state.ready


def _reason(text: str) -> str:
    """The sentence that the supervisor ended with."""
    said = [line.removeprefix("fleetstream: ") for line in text.splitlines() if line.startswith("fleetstream: ")]
    return said[-1] if said else ""
