"""The demo on a running stack: its last line is the proof, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from infra.session import Session
from tests.walk.history import wait_for

ROOT = Path(__file__).parents[2]
LIMIT_S = 600.0
FIELDS = (
    "accepted", "in_kafka", "stored", "lost", "doubled", "duplicates_suppressed", "windows", "e2e_ms_p50", "e2e_ms_p95",
    "samples_per_s", "accepted_packets", "in_kafka_packets", "stored_packets",
)  # fmt: skip


def start(line: Session, *options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "FLEETSTREAM_HOME": str(line.stack.settings.home), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "infra", "demo", "--cars", "4", "--turbines", "2", *options],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def fleet_processes(line: Session) -> list[psutil.Process]:
    plan = str(line.stack.settings.home / "demo" / "plan.json")
    return [process for process in psutil.process_iter(["cmdline"]) if plan in (process.info["cmdline"] or [])]


def test_ten_seconds_end_with_a_proof(line: Session) -> None:
    done = start(line, "--seconds", "10")
    out, said = done.communicate(timeout=LIMIT_S)
    assert done.returncode == 0, said
    summary = json.loads(out.splitlines()[-1])
    assert set(FIELDS) <= summary.keys()
    assert summary["lost"] == summary["doubled"] == summary["altered"] == summary["foreign"] == 0
    assert summary["accepted"] == summary["stored"] == summary["in_kafka"] > 500
    assert summary["accepted_packets"] == summary["stored_packets"] == summary["in_kafka_packets"] > 6 * 5
    assert summary["windows"] > 0
    assert 0 < summary["e2e_ms_p50"] <= summary["e2e_ms_p95"]
    assert f"http://127.0.0.1:{line.stack.ports['api']}/" in said
    assert not fleet_processes(line)


def test_ctrl_c_stops_the_fleet_and_leaves_the_stack(line: Session) -> None:
    demo = start(line)
    wait_for("the fleet runs", lambda: bool(fleet_processes(line)), LIMIT_S)
    demo.send_signal(signal.SIGINT)
    _, said = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 0, said
    assert not fleet_processes(line)
    wait_for("the stack stands", lambda: line.supervisor.state().ready, LIMIT_S)
