"""A simulated fleet as a process: every device through the real agent, until told to stop.

Comes in: a plan. Goes out: MQTT, the history of everything accepted, and one JSON line a second on stdout. SIGTERM or
SIGINT switch the machines off, wait until all is acknowledged (bounded), and end; a kill loses nothing that was
accepted: the next run finds it in the spools and goes on.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from types import FrameType

from edge_agent.wiring import FileJournal
from simulators.plan import FleetPlan
from simulators.runner import AgentRunner
from simulators.settings import SimulatorSettings
from simulators.tally import Tally
from simulators.wiring import build_fleet

log = logging.getLogger(__name__)
REPORT_S = 1.0


@dataclass(frozen=True, slots=True)
class FleetReport:
    """How far the fleet is; packets and samples accepted by this process, agents still at work."""

    devices: int
    running: int
    accepted_packets: int
    accepted_samples: int
    missed_ms: int
    late_ms: int
    ended: bool = False
    undrained: int = 0


def run_fleet(plan: FleetPlan, settings: SimulatorSettings, seconds: float | None, stop: threading.Event) -> bool:
    """Run until ``stop`` or ``seconds``, then drain; whether all was acknowledged. Reports go to stdout."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    journal = FileJournal(plan.history)
    tally = Tally(journal)
    fleet = build_fleet(plan, settings, tally)
    runner = AgentRunner([agent for agent, _ in fleet], settings.workers)

    def report(ended: bool = False) -> FleetReport:
        missed_ms = sum(source.missed_ms for _, source in fleet)
        late_ms, runner.late_ms = runner.late_ms, 0
        now = FleetReport(
            len(fleet), runner.running, tally.packets, tally.samples, missed_ms, late_ms, ended, runner.undrained
        )
        print(json.dumps(asdict(now)), flush=True)  # noqa: T201 - this is the process's output
        return now

    runner.start()
    deadline_s = time.monotonic() + seconds if seconds is not None else float("inf")
    while not stop.wait(REPORT_S) and time.monotonic() < deadline_s:
        runner.wait(0)
        report()
    for _, source in fleet:
        source.end()
    deadline_s = time.monotonic() + settings.drain_s
    while not runner.wait(REPORT_S) and time.monotonic() < deadline_s:
        report()
    runner.leave()
    journal.close()
    return report(ended=True).undrained == 0


def obey_signals(stop: threading.Event) -> None:
    """SIGTERM and SIGINT set ``stop``; a second one changes nothing."""

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def log_to_stderr() -> None:
    """Warnings and worse, key=value."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"
    )
