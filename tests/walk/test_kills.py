"""SIGKILL of every part of the line, and a deleted checkpoint: nothing lost, nothing doubled."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from contracts.tables import ROLE_SINK
from infra.enrol import Enrolment, enrol
from infra.session import Session
from tests.walk.history import Verdict, compare, wait_for

AGENTS = 6
RUN_S = 24.0
SERVICES = ("mosquitto", "gateway", "kafka", "ingest", "postgres")
READY_S = 300.0


class Fleet:
    """The agents' process; ``kill`` and ``start`` keep spools and journal."""

    def __init__(self, line: Session, folder: Path) -> None:
        self.journal = folder / "journal.jsonl"
        self._plan = folder / "fleet.json"
        self._log = folder / "fleet.log"
        devices = self.devices = [f"kill-{folder.name[-8:]}-{number}" for number in range(AGENTS)]
        with psycopg.connect(line.stack.dsn(ROLE_SINK)) as connection:
            enrol(connection, [Enrolment(name, "acme", name, "car", "simulated") for name in devices])
        self._plan.write_text(json.dumps(self._told(line, folder, devices)), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            command = [sys.executable, "-m", "tests.walk.waves", str(self._plan)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd=Path(__file__).parents[2])

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def finish(self) -> int:
        """Ask it to stop and drain; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(READY_S)

    @staticmethod
    def _told(line: Session, folder: Path, devices: list[str]) -> dict[str, object]:
        agents = []
        for device in devices:
            credentials = line.stack.authority.client(device)
            paths = {"ca": credentials.ca, "cert": credentials.certificate, "key": credentials.key}
            spool = {"device": device, "tenant": "acme", "spool": str(folder / f"{device}.db")}
            agents.append({**spool, **{name: str(path) for name, path in paths.items()}})
        mqtt = {"host": "127.0.0.1", "port": line.stack.ports["mqtt"]}
        return {"mqtt": mqtt, "journal": str(folder / "journal.jsonl"), "agents": agents}


def kill_service(line: Session, name: str) -> None:
    """SIGKILL the service's whole process group (Spark: driver, JVM and Python workers).

    It may be down already, since what it needs was killed before: then its turn comes when it is back.
    """
    before = line.supervisor.state().services[name].restarts

    def struck() -> bool:
        nonlocal before
        now = line.supervisor.state().services[name]
        if now.pid is None:
            return False
        before = now.restarts
        try:
            os.killpg(now.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    wait_for(f"{name} runs, to be killed", struck, READY_S)
    wait_for(f"{name} restarted", lambda: line.supervisor.state().services[name].restarts > before, READY_S)


def all_ready(line: Session) -> bool:
    return line.supervisor.state().ready


@pytest.fixture
def fleet(line: Session, tmp_path: Path) -> Fleet:
    return Fleet(line, tmp_path)


def settled(fleet: Fleet, line: Session) -> Callable[[], bool]:
    return lambda: not compare(fleet.journal, line.stack.dsn(ROLE_SINK)).lost


def test_every_part_is_killed_once(line: Session, fleet: Fleet) -> None:
    seed = int(os.environ.get("SEED", "7"))
    print(f"SEED={seed}")
    order = random.Random(seed).sample([*SERVICES, "agent", "checkpoint"], len(SERVICES) + 2)
    fleet.start()
    wait_for("first packets stored", lambda: _stored(fleet, line) > 0, READY_S)
    begun = time.monotonic()
    for number, victim in enumerate(order):
        due = begun + RUN_S * (number + 0.5) / len(order)
        wait_for("the next kill is due", lambda due=due: time.monotonic() >= due, RUN_S)  # type: ignore[misc]
        print(f"kill {victim} after {time.monotonic() - begun:.1f} s")
        _strike(line, fleet, victim)
    wait_for("the run's time is over", lambda: time.monotonic() >= begun + RUN_S, RUN_S)
    wait_for("every service is back", lambda: all_ready(line), READY_S)
    assert fleet.finish() == 0
    wait_for("every accepted packet is stored", settled(fleet, line), READY_S, every_s=1.0)
    verdict = compare(fleet.journal, line.stack.dsn(ROLE_SINK))
    print(f"accepted={verdict.accepted} stored={verdict.stored}")
    assert verdict.accepted > AGENTS * RUN_S, "the fleet hardly ran"
    assert verdict.clean, verdict
    assert windows_that_differ(line, fleet) == []


WINDOWS_FROM_READINGS = """
WITH said AS (
    SELECT device, signal, width_s,
           to_timestamp(floor(extract(epoch FROM measured_at) / width_s) * width_s) AS starts_at,
           count(*) AS n, sum(value) AS total, min(value) AS low, max(value) AS high
    FROM readings CROSS JOIN (VALUES (10), (60)) AS w (width_s)
    WHERE device = ANY(%(devices)s) AND quality < 64 GROUP BY 1, 2, 3, 4
), held AS (
    SELECT device, signal, width_s, starts_at, n, mean * n AS total, min AS low, max AS high
    FROM windows WHERE device = ANY(%(devices)s) AND width_s IN (10, 60)  -- an hour may end during the run
)
SELECT * FROM said FULL JOIN held USING (device, signal, width_s, starts_at)
WHERE (said.n = held.n AND said.low = held.low AND said.high = held.high
       AND abs(said.total - held.total) < 1e-6 * greatest(1, abs(said.total))) IS NOT TRUE
"""


def windows_that_differ(line: Session, fleet: Fleet) -> list[tuple[object, ...]]:
    """Windows that are not what the stored readings add up to: a merge that was lost or done twice."""
    with psycopg.connect(line.stack.dsn(ROLE_SINK)) as connection:
        held = connection.execute("SELECT count(*) FROM windows WHERE device = ANY(%s)", [fleet.devices]).fetchone()
        assert held is not None and held[0] > AGENTS * 4
        return connection.execute(WINDOWS_FROM_READINGS, {"devices": fleet.devices}).fetchall()


def _strike(line: Session, fleet: Fleet, victim: str) -> None:
    if victim == "agent":
        fleet.kill()
        fleet.start()
    elif victim == "checkpoint":
        folder = line.stack.settings.home / "checkpoints"
        assert folder.is_dir()
        pid = line.supervisor.state().services["ingest"].pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    else:
        kill_service(line, victim)


def _stored(fleet: Fleet, line: Session) -> int:
    return compare(fleet.journal, line.stack.dsn(ROLE_SINK)).stored if fleet.journal.exists() else 0


def test_the_checker_sees_loss_doubles_and_changed_bytes(line: Session, tmp_path: Path) -> None:
    """The judge itself is judged: rows cut, doubled and altered by hand are found."""
    journal = tmp_path / "journal.jsonl"
    name = f"judge-{tmp_path.name[-8:]}"
    with psycopg.connect(line.stack.dsn(ROLE_SINK)) as connection:
        registration = enrol(connection, [Enrolment(name, "acme", name, "car", "simulated")])[0]
        for seq, digest in ((1, b"\x01"), (2, b"\x02"), (2, b"\x02"), (3, b"\xff"), (5, b"\x05")):
            connection.execute(
                "INSERT INTO packet_rows (received_at, first_at, last_at, boot_epoch, seq, base_ms, device_key,"
                " tenant_id, samples, lane, clock_trusted, signals, offsets_ms, vals, sha256)"
                " VALUES (now(), now(), now(), 1, %s, 0, %s, %s, 0, 0, true, '{}', '{}', '{}', %s)",
                (seq, registration.device_key, registration.tenant_id, digest),
            )
    entries = [[name, 1, seq, bytes([seq]).hex(), 0, 0] for seq in (1, 2, 3, 4)]
    journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    verdict = compare(journal, line.stack.dsn(ROLE_SINK))
    expected = Verdict(4, 4, ((name, 1, 4),), ((name, 1, 2),), ((name, 1, 3),), ((name, 1, 5),))
    with psycopg.connect(line.stack.dsn(ROLE_SINK)) as connection:
        connection.execute("DELETE FROM packet_rows WHERE device_key = %s", (registration.device_key,))
    assert verdict == expected
