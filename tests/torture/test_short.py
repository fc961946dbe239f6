"""One short real run by the command itself: a dozen faults, nothing lost, and the summary that the command promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SEED, SECONDS, KILLS = 8, 20, 8
PATIENCE_S, LONGEST_S = 600, 3_000
"""How soon a busy machine recovers is measured by long runs; here it only must."""

ROOT = Path(__file__).parents[2]


def test_a_short_run_is_clean() -> None:
    command = [sys.executable, "-m", "tests.torture"]
    numbers = ["--seconds", str(SECONDS), "--kills", str(KILLS), "--seed", str(SEED), "--patience", str(PATIENCE_S)]
    done = subprocess.run(
        [*command, *numbers], cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0 and told["ok"], (told, done.stderr[-3_000:])
    assert told["seed"] == SEED and told["kills"] >= KILLS and sum(told["faults"].values()) >= KILLS
    assert told["accepted"] > 0 and told["stored"] + told["set_aside"] + told["dropped_reported"] >= told["accepted"]
    zero = ("lost", "doubled", "wrong_device", "acked_not_stored", "acked_not_in_log", "unexplained")
    assert {name: told[name] for name in zero} == dict.fromkeys(zero, 0)
    assert told["recovery_s_p50"] <= told["recovery_s_p95"] <= told["recovery_s_max"]
