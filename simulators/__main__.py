"""``python -m simulators fleet --plan plan.json``: run a simulated fleet; exit code 0 when all was acknowledged."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

from contracts.errors import FleetstreamError
from simulators.fleet import log_to_stderr, obey_signals, run_fleet
from simulators.plan import read_plan
from simulators.settings import load_settings

EXIT_UNDRAINED = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulators")
    fleet = parser.add_subparsers(required=True).add_parser("fleet", help="run the devices of a plan")
    fleet.add_argument("--plan", type=Path, required=True, help="JSON file (simulators.plan.FleetPlan)")
    fleet.add_argument("--seconds", type=float, help="switch the machines off after this time")
    given = parser.parse_args()
    log_to_stderr()
    stop = threading.Event()
    obey_signals(stop)
    try:
        report = run_fleet(read_plan(given.plan), load_settings(), given.seconds, stop)
    except FleetstreamError as error:
        sys.stderr.write(f"simulators: {error}\n")
        return 1
    return EXIT_UNDRAINED if report.undrained else 0


if __name__ == "__main__":
    sys.exit(main())
