"""``python -m tests.api.schema_run``: Schemathesis against the API on a store that holds something, role by role.

Schemathesis is no dependency of the project (docs/decisions/078-schemathesis-beside.md): it is found on the PATH, or
SCHEMATHESIS names it. Last line of output: one JSON object with the cases tried and the failures by role; exits
with 1 when there are any. The live stream has no end and is left out.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from api.keys import ROLES
from infra.enrol import Enrolment
from tests.api.fix_api import SPEED, Fleet, Server, api_settings, running
from tests.bench.bench_console import empty_store

EXAMPLES = 40
SEED = 1
CHECKS = (
    "not_a_server_error", "response_schema_conformance", "content_type_conformance", "status_code_conformance",
    "response_headers_conformance",
)  # fmt: skip
SUMMARY = re.compile(r"(\d+) generated(?:, (\d+) found)?")


def main() -> int:
    program = shutil.which(os.environ.get("SCHEMATHESIS", "schemathesis"))
    if program is None:
        print("Schemathesis is not there: pip install schemathesis in an environment of its own", file=sys.stderr)
        return 2
    found: dict[str, dict[str, int]] = {}
    with serving() as (fleet, server):
        for role in ROLES:
            found[role] = tried(program, server.base_url, fleet.key("north", role))
    print(json.dumps({"seed": SEED, "examples": EXAMPLES, "roles": found}))
    return int(any(one["failures"] or not one["cases"] for one in found.values()))


def tried(program: str, address: str, key: str) -> dict[str, int]:
    """Cases and failures of one role; what it prints goes to standard error."""
    command = [
        program, "run", f"{address}/api/v1/openapi.json", "-H", f"Authorization: Bearer {key}", "--checks",
        ",".join(CHECKS), "--exclude-path-regex", "stream", "--max-examples", str(EXAMPLES), "--seed", str(SEED),
        "--request-timeout", "60", "--no-color", "--suppress-health-check", "all",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:  # it leaves a folder of its own where it runs
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "NO_PROXY": "*"}, stdout=subprocess.PIPE, text=True, check=False
        )
    counts = SUMMARY.search(done.stdout)
    if done.returncode or counts is None:
        print(done.stdout, file=sys.stderr)
    cases, failures = (int(counts[1]), int(counts[2] or 0)) if counts else (0, 0)
    return {"cases": cases, "failures": failures or int(done.returncode != 0)}


@contextmanager
def serving() -> Iterator[tuple[Fleet, Server]]:
    """A tenant with five cars, readings and windows; limits per key have tests of their own and are out of the way."""
    dice, now = random.Random(SEED), datetime.now(UTC)
    with empty_store() as fleet:
        fleet.enrol(*(Enrolment(f"north-{n}", "north", f"Car {n}", "car") for n in range(5)))
        for n in range(5):
            for k in range(20):
                readings = [(SPEED.number, 100 * j, 50 * dice.random(), 0) for j in range(10)]
                fleet.packet(f"north-{n}", now - timedelta(seconds=30 * k + n), readings)
            begin = now.replace(second=0, microsecond=0) - timedelta(minutes=5)
            fleet.window(f"north-{n}", SPEED.number, begin, [0, 10, 20], 60)
        with running(api_settings(fleet, rate_per_s=100_000, rate_burst=1_000_000)) as server:
            yield fleet, server


if __name__ == "__main__":
    raise SystemExit(main())
