"""Through the whole line: a packet whose clock was a year ahead is refused, repaired, sent twice and stored once."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import psycopg
from paho.mqtt.enums import CallbackAPIVersion

from contracts.packet import Block, Header, Packet, encode_packet
from contracts.tables import ROLE_SINK
from contracts.topics import up_topic
from infra.enrol import Enrolment
from infra.fleets import enrol_devices
from infra.session import Session
from tests.walk.history import wait_for

PATIENCE_S = 240.0
ROOT = Path(__file__).parents[2]
YEAR_MS = 365 * 86_400_000
SPEED = 1


def letters(line: Session, *arguments: str) -> Any:
    environment = {**os.environ, "FLEETSTREAM_HOME": str(line.stack.settings.home), "NO_COLOR": "1"}
    words = [sys.executable, "-m", "infra", "letters", *arguments, "--json"]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-1_500:]
    return json.loads(done.stdout)


def publish(line: Session, device: str, frame: bytes) -> None:
    """As the device would, with its certificate; returns when the broker has the gateway's word for it."""
    files = line.stack.authority.client(device)
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=device, protocol=mqtt.MQTTv5)
    client.tls_set(str(files.ca), str(files.certificate), str(files.key), cert_reqs=ssl.CERT_REQUIRED)
    client.connect("127.0.0.1", line.stack.ports["mqtt"])
    client.loop_start()
    try:
        client.publish(up_topic(device, "live"), frame, qos=1).wait_for_publish(PATIENCE_S)
    finally:
        client.disconnect()
        client.loop_stop()


def count(line: Session, statement: str, *values: object) -> int:
    with psycopg.connect(line.stack.dsn(ROLE_SINK)) as connection:
        row = connection.execute(statement.encode(), values).fetchone()
    return int(row[0]) if row else 0


def test_a_refused_packet_is_repaired_and_stored_once(line: Session, tmp_path: Path) -> None:
    device = f"let-{tmp_path.name[-8:]}"
    enrol_devices(line.stack, [Enrolment(device, "acme", device, "car", "simulated")], lambda: False)
    now_ms = time.time_ns() // 1_000_000
    block = Block(SPEED, -2, 0, (0, 100), (4_200, 4_300))
    header = Header("acme", device, 1, 4711, 1, 0, now_ms + YEAR_MS, 5, False, 2)
    publish(line, device, encode_packet(Packet(header, (block,))))
    refused = "SELECT count(*) FROM dead_letters WHERE device = %s"
    wait_for("the letter is in the store", lambda: count(line, refused, device) == 1, PATIENCE_S)
    (letter,) = letters(line, "list", "--device", device)
    assert letter["reason"] == "future" and not letter["sent_again"]
    assert [one["value"] for one in letters(line, "show", letter["id"])["packet"]["readings"]] == [42.0, 43.0]
    sent = [letters(line, "resubmit", letter["id"], "--shift-ms", str(-YEAR_MS))["sent"] for _ in range(2)]
    assert sent[0], "the second one may find it stored already"
    seen = (
        "SELECT coalesce(sum(packets + duplicates), 0) FROM seen_ranges s JOIN devices d USING (device_key)"
        " WHERE device = %s"
    )
    wait_for("every copy has arrived", lambda: count(line, seen, device) == sum(sent), PATIENCE_S)
    assert count(line, "SELECT count(*) FROM readings WHERE device = %s", device) == 2
    shown = letters(line, "show", letter["id"])
    assert [one["stored"] for one in shown["resubmissions"]] == [True] * sum(sent)
    assert not letters(line, "resubmit", letter["id"], "--shift-ms", str(-YEAR_MS))["sent"]
