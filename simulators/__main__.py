"""``python -m simulators fleet|load --plan plan.json``: exit code 0 when everything sent was acknowledged."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from contracts.errors import FleetstreamError
from simulators.fleet import log_to_stderr, obey_signals, run_fleet
from simulators.load_run import run_load
from simulators.plan import read_plan
from simulators.settings import load_settings

EXIT_UNDRAINED = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulators")
    parser.add_argument("what", choices=("fleet", "load"), help="real agents, or thousands of bare MQTT sessions")
    parser.add_argument("--plan", type=Path, required=True, help="JSON file (simulators.plan.FleetPlan)")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    given = parser.parse_args()
    log_to_stderr()
    stop = threading.Event()
    obey_signals(stop)
    try:
        run = run_fleet if given.what == "fleet" else run_load
        complete = run(read_plan(given.plan), load_settings(), given.seconds, stop)
    except FleetstreamError as error:
        sys.stderr.write(f"simulators: {error}\n")
        return 1
    return 0 if complete else EXIT_UNDRAINED


if __name__ == "__main__":
    sys.exit(main())
