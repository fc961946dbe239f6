"""A load run as a process: connect, send, drain, one JSON report on stdout."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict

from simulators.load import Load, LoadSettings
from simulators.plan import FleetPlan
from simulators.settings import SimulatorSettings
from simulators.tape import Shape

FOREVER_S = 1e9


def run_load(plan: FleetPlan, settings: SimulatorSettings, seconds: float | None, stop: threading.Event) -> bool:
    """Whether everything sent was confirmed."""
    shape = Shape(settings.load_packet_ms, settings.load_rate_hz)
    load = Load(plan, LoadSettings(shape), boot_epoch=time.time_ns() // 1_000_000_000)
    load.connect()
    load.run(FOREVER_S if seconds is None else seconds, stop)
    complete = load.drain(settings.drain_s)
    sys.stdout.write(json.dumps(asdict(load.report())) + "\n")
    load.close()
    return complete
