"""One crash on the whole stack: a real agent, offline at first, to the store, the receipt, the export and the logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from contracts.tables import ROLE_EVIDENCE
from infra.enrol import Enrolment
from infra.fleets import enrol_devices
from infra.session import Session
from tests.bench.bench_crash import outage

WHY = ("--basis", "owner_consent", "--reference", "consent 12", "--purpose", "a test")


def fleetstream(line: Session, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "infra", "edr", *arguments, "--json"],
        env={**os.environ, "FLEETSTREAM_HOME": str(line.stack.settings.home), "NO_COLOR": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]
    return json.loads(done.stdout)


def test_a_crash_while_offline_is_stored_receipted_and_verifies(line: Session, tmp_path: Path) -> None:
    enrol_devices(line.stack, [Enrolment("crash-00", "bench", "Crash 0", "car", "simulated")], lambda: False)
    outage(line, tmp_path, "crash-00")
    with psycopg.connect(line.stack.dsn(ROLE_EVIDENCE)) as store:
        trust = store.execute("SELECT DISTINCT trust FROM evidence_records").fetchall()
        refused = store.execute("SELECT reason, detail FROM evidence_asides").fetchall()
        attachments = store.execute("SELECT state, claimed_by IS NOT NULL FROM evidence_attachments").fetchall()
        missing = store.execute("SELECT ranges FROM evidence_ranges").fetchall()
    assert trust == [("root",)] and refused == [] and set(attachments) == {("whole", True)} and missing
    records = [one for one in fleetstream(line, "list", "--tenant", "bench") if not one["replaced"]]
    (record,) = [one["record"] for one in records]
    shown = fleetstream(line, "show", record, "--tenant", "bench", *WHY)
    assert shown["summary"]["complete"] and shown["summary"]["source"] == "simulated"
    file = tmp_path / "crash.fsx"
    fleetstream(line, "export", record, "--tenant", "bench", "--out", str(file), *WHY)
    verdict = fleetstream(line, "verify", str(file), "--trust-root", str(line.stack.authority.ca_file))
    assert verdict["holds"] and verdict["root_trusted"]
    assert fleetstream(line, "custody", "verify")["holds"]
