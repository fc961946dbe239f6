"""Through the whole line: a command asked, carried out, answered and audited; a device that lost who it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from contracts.tables import ROLE_SINK
from edge_agent.agent import Agent
from edge_agent.journal import FileJournal
from infra.enrol import Enrolment, enrol
from infra.session import Session
from tests.walk.history import compare, wait_for
from tests.walk.waves import make_agent

PATIENCE_S = 240.0
ROOT = Path(__file__).parents[2]


def command(line: Session, *arguments: str, code: int = 0) -> Any:
    environment = {**os.environ, "FLEETSTREAM_HOME": str(line.stack.settings.home), "NO_COLOR": "1"}
    words = [sys.executable, "-m", "infra", "command", *arguments, "--json"]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT
    )
    assert done.returncode == code, done.stderr[-1_500:]
    return json.loads(done.stdout) if done.stdout else done.stderr


@contextmanager
def running(line: Session, device: str, folder: Path, journal: FileJournal) -> Iterator[Agent]:
    credentials = line.stack.authority.client(device)
    told = {"device": device, "tenant": "acme", "spool": str(folder / f"{device}.db"), "ca": str(credentials.ca),
            "cert": str(credentials.certificate), "key": str(credentials.key)}  # fmt: skip
    agent = make_agent(1, told, {"host": "127.0.0.1", "port": line.stack.ports["mqtt"]}, journal)
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop, 120_000))
    thread.start()
    try:
        yield agent
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def rows(line: Session, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(line.stack.dsn(ROLE_SINK)) as connection:
        return connection.execute(statement.encode(), values).fetchall()


def test_a_command_goes_and_its_answer_comes_back(line: Session, tmp_path: Path) -> None:
    device = f"cmd-{tmp_path.name[-8:]}-a"
    with psycopg.connect(line.stack.dsn(ROLE_SINK)) as connection:
        enrol(connection, [Enrolment(device, "acme", device, "car", "simulated")])
    waiting = command(line, "send", device, "sampling", "profile=interval", "min_interval_ms=1000", "--key", "k1")
    assert waiting["state"] == "queued"
    assert command(line, "send", device, "sampling", "profile=interval", "min_interval_ms=1000", "--key", "k1")[
        "command_id"
    ] == waiting["command_id"]  # fmt: skip
    journal = FileJournal(tmp_path / "journal")
    with running(line, device, tmp_path, journal):
        wait_for("the device that was off carried it out", lambda: _state(line, waiting) == "done", PATIENCE_S)
        done = command(line, "send", device, "ping", "--wait", "180")
        assert (done["state"], done["detail"]["boot_epoch"]) == ("done", 1)
        resync = command(line, "send", device, "resync", "ranges=[[1,1,999999]]", "--wait", "180")
        assert {reason for *_, reason in resync["detail"]["not_held"]} <= {"freed", "never_given"}
        refused = command(line, "send", device, "dance", code=1)
        assert "unknown_kind" in refused or "none of" in refused
    shown = command(line, "show", waiting["command_id"])
    assert [change["to_state"] for change in shown["changes"]][:2] == ["queued", "sent"]
    assert shown["changes"][-1]["changed_by"] == f"device:{device}"
    listed = command(line, "list", "--device", device)
    assert sorted(one["kind"] for one in listed) == ["ping", "resync", "sampling"]
    journal.close()
    settled = lambda: compare(tmp_path / "journal", line.stack.dsn(ROLE_SINK)).clean  # noqa: E731
    wait_for("everything is stored", settled, PATIENCE_S)


def test_a_device_that_lost_who_it_was_loses_nothing(line: Session, tmp_path: Path) -> None:
    """Spool and identity file gone: it begins at epoch 1 again, is told, and goes on above its own past."""
    device = f"cmd-{tmp_path.name[-8:]}-b"
    with psycopg.connect(line.stack.dsn(ROLE_SINK)) as connection:
        enrol(connection, [Enrolment(device, "acme", device, "car", "simulated")])
    journal = FileJournal(tmp_path / "journal")
    stored = "SELECT boot_epoch, count(*) FROM packets WHERE device = %s GROUP BY 1 ORDER BY 1"
    with running(line, device, tmp_path, journal):
        wait_for("its first packets", lambda: sum(n for _, n in rows(line, stored, device)) >= 8, PATIENCE_S)
    told = "SELECT count(*) FROM outbox WHERE topic = 'epochs' AND kafka_key = %s AND published_at IS NOT NULL"
    wait_for("the gateways are told of its epoch", lambda: rows(line, told, device) == [(1,)], PATIENCE_S)
    settled = lambda: compare(tmp_path / "journal", line.stack.dsn(ROLE_SINK)).clean  # noqa: E731
    wait_for("the first run is stored", settled, PATIENCE_S)
    for path in tmp_path.glob(f"{device}.*"):
        path.unlink()
    before = dict(rows(line, stored, device))
    with running(line, device, tmp_path, journal) as agent:
        wait_for("it goes on under epoch 2", lambda: dict(rows(line, stored, device)).get(2, 0) >= 8, PATIENCE_S)
        assert agent.spool is not None
        assert agent.spool.epoch.boot_epoch == 2
    journal.close()
    wait_for("everything accepted is stored, once", settled, PATIENCE_S)
    assert dict(rows(line, stored, device))[1] == before[1], "nothing of the first run was touched"
    assert rows(line, "SELECT nonce FROM agent_status JOIN devices USING (device_key) WHERE device = %s"
                " AND boot_epoch = 1 AND nonce <> (SELECT nonce FROM seen_ranges JOIN devices USING (device_key)"
                " WHERE device = %s AND boot_epoch = 1)", device, device) == []  # fmt: skip
    told = "SELECT DISTINCT reason, boot_epoch FROM refused WHERE device = %s"
    conflict = lambda: "identity_conflict" in dict(rows(line, told, device))  # noqa: E731
    wait_for("what was refused is in the store", conflict, PATIENCE_S)
    refused = rows(line, told, device)
    assert {reason for reason, _ in refused} - {"unregistered"} == {"identity_conflict"}, "the registry may come later"
    assert {epoch for reason, epoch in refused if reason == "identity_conflict"} <= {0, None}, "no number is taken away"
    wait_for("its change is an event", lambda: bool(_changes(line, device)), PATIENCE_S)
    assert _changes(line, device) == [2]


def _changes(line: Session, device: str) -> list[int]:
    """Epochs that a device told it had moved to."""
    said = rows(line, "SELECT kafka_value FROM outbox WHERE topic = 'events' AND kafka_key = %s", device)
    events = [json.loads(value) for (value,) in said]
    return [one["to_epoch"] for one in events if one["kind"] == "identity_changed"]


def _state(line: Session, one: dict[str, Any]) -> str:
    return str(rows(line, "SELECT state FROM device_commands WHERE command_id = %s", one["command_id"])[0][0])
