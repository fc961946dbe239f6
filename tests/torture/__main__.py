"""``make torture SECONDS=150 KILLS=40 SEED=7``: one run; the last line of stdout is one JSON object. Exit 1: not ok."""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from infra.paths import default_cache
from infra.settings import InfraSettings, PortSettings
from tests.torture.arena import arena
from tests.torture.menu import MENU
from tests.torture.plan import Step, draw_plan
from tests.torture.run import RECOVER_S, Run
from tests.torture.summary import summary

EXIT_INTERRUPTED = 130
LONGEST_PAUSE_S = 2.0
"""Services that are killed all the time are started again at once, or the run would measure the supervisor's pauses."""


def settings_in(home: Path) -> InfraSettings:
    """A stack of its own on free ports below ``home``; without detection, which takes part in nothing that is judged
    and whose second Spark would slow down the first."""
    ports = PortSettings(**dict.fromkeys(PortSettings.model_fields, 0))
    return InfraSettings(
        home=home, cache=default_cache(), ports=ports, longest_pause_s=LONGEST_PAUSE_S, detection=False
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture", description=__doc__, epilog="Example: make torture SECONDS=300 KILLS=30 SEED=7"
    )
    parser.add_argument("--seconds", type=float, default=150.0, help="the storm takes 60 %% of it; the rest follows it")
    parser.add_argument("--kills", type=int, default=30, help="SIGKILLs of real processes")
    parser.add_argument("--seed", type=int, default=None, help="the same seed draws the same plan; default: a new one")
    parser.add_argument("--patience", type=float, default=RECOVER_S, help="seconds within which lag must be 0 again")
    parser.add_argument("--runs", type=int, default=1, help="so many runs, each on a fresh stack, seeds counting up")
    parser.add_argument("--append", type=Path, default=None, help="add each run's line to this file")
    parser.add_argument("--plan", action="store_true", help="print the plan and do nothing")
    parser.add_argument("--only", default="", help="names of faults, with commas: draw from these alone")
    parser.add_argument("--keep", action="store_true", help="leave the run's folder with data and logs, and name it")
    return parser.parse_args(given)


def main(given: list[str]) -> int:
    told = arguments(given)
    first = random.SystemRandom().randrange(2**32) if told.seed is None else told.seed
    menu = [fault for fault in MENU.values() if not told.only or fault.name in told.only.split(",")]
    plans = {seed: draw_plan(seed, told.seconds, told.kills, menu) for seed in range(first, first + told.runs)}
    if told.plan:
        print("\n".join(step.line() for plan in plans.values() for step in plan))
        return 0
    obey_signals()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    logging.getLogger("infra").setLevel(logging.CRITICAL)
    good = True
    try:
        for seed, plan in plans.items():
            result = one_run(seed, plan, told.keep, told.patience)
            good &= bool(result["ok"])
            if told.append is not None:
                with told.append.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
            print(json.dumps(result), flush=True)
    except KeyboardInterrupt:
        say("interrupted; everything that was started is stopped")
        return EXIT_INTERRUPTED
    return 0 if good else 1


def obey_signals() -> None:
    """SIGTERM is Ctrl-C, and a second one while everything is being stopped changes nothing."""

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def one_run(seed: int, plan: Sequence[Step], keep: bool, patience_s: float = RECOVER_S) -> dict[str, Any]:
    """A fresh stack, the plan, the verdict; the folder goes away unless it is to be kept or tells of an offence."""
    say(f"seed {seed}: {len(plan)} steps")
    home = Path(tempfile.mkdtemp(prefix="fleetstream-torture-"))
    home.chmod(0o711)
    result: dict[str, Any] = {"ok": True}
    try:
        with arena(settings_in(home)) as place:
            result = summary(seed, place, Run(place, say, patience_s)(plan))
        return result
    finally:
        if keep or not result["ok"]:
            say(f"kept: {home}")
        else:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
