"""Everything since: each packet once and in one order, while writers begin, commit and give up in any order."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg

from infra.enrol import Enrolment
from stream_jobs.sinks.compactor import Compactor
from tests.api.fix_api import PATIENCE_S, RPM, SPEED, Fleet, Server, api_settings, ms_of, running

NOW = datetime.now(UTC).replace(microsecond=0)
PATH = "/api/v1/feed/readings"
INSERT = (
    "INSERT INTO packet_rows (received_at, first_at, last_at, boot_epoch, seq, base_ms, device_key, tenant_id, samples,"
    " lane, clock_trusted, signals, offsets_ms, vals, sha256)"
    " VALUES (now(), %s, %s, 1, %s, %s, %s, %s, 1, 0, true, %s, '{0}', '{1.5}', '')"
)


def put(connection: psycopg.Connection[Any], fleet: Fleet, device: str, seq: int) -> None:
    key, tenant = fleet.devices[device], fleet.tenant_of(device)
    connection.execute(INSERT.encode(), (NOW, NOW, seq, ms_of(NOW), key, tenant, [SPEED.number]))


def ask(client: httpx.Client, after: str | None, **more: Any) -> dict[str, Any]:
    question = {"after": after, **more} if after else more
    body: dict[str, Any] = client.get(PATH, params=question).raise_for_status().json()
    return body


def follow(client: httpx.Client, after: str | None, limit: int) -> tuple[list[tuple[str, int]], str]:
    """(device, seq) of all pages up to the end for now, and where it is."""
    found = []
    while True:
        body = ask(client, after, limit=limit)
        found += [(one["device"], one["seq"]) for one in body["items"]]
        after = body["next"]
        if body["complete"]:
            assert after is not None
            return found, after


def test_a_packet_tells_its_readings_with_unit_quality_and_asset(fleet: Fleet, server: Server) -> None:
    moved = NOW - timedelta(minutes=10)
    samples = [(SPEED.number, -1, 1.5, 0), (RPM.number, 0, float("nan"), 7), (SPEED.number, 1, 2.5, 0)]
    fleet.packet("north-1", moved, samples)
    fleet.packet("south-1", NOW, [(SPEED.number, 0, 9.0, 0)])
    fleet.enrol(Enrolment("north-1", "north", "Car 9", "car", since=moved))
    with server.client(fleet.key("north")) as client:
        body = ask(client, None)
    (packet,) = body["items"]
    assert (packet["device"], packet["boot_epoch"], packet["seq"], packet["lane"]) == ("north-1", 1, 1, "live")
    told = [(one["asset"], one["value"], one["unit"]) for one in packet["readings"]]
    assert told == [("Car 1", 1.5, "km/h"), ("Car 9", None, RPM.unit), ("Car 9", 2.5, "km/h")]
    assert packet["readings"][1]["quality"] != "good" and packet["readings"][0]["measured_at"].endswith("Z")
    assert body["complete"]


def test_what_commits_later_is_not_skipped(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north")) as client:
        cursor = ask(client, "end")["next"]
        with psycopg.connect(fleet.sink_dsn) as slow, psycopg.connect(fleet.sink_dsn) as quick:
            put(slow, fleet, "north-1", 1)
            put(quick, fleet, "north-2", 1)
            quick.commit()
            found, cursor = follow(client, cursor, 10)
            assert found == [], "the one that began first may still come, and must come first"
            slow.commit()
        found, cursor = follow(client, cursor, 10)
        assert found == [("north-1", 1), ("north-2", 1)]
        assert follow(client, cursor, 10)[0] == []


def test_each_packet_once_whatever_order_writers_commit_in(fleet: Fleet, server: Server) -> None:
    """Four writers that begin, write, commit and give up as dice say; a reader of pages of three in between."""
    dice = random.Random(7)
    devices = ("north-1", "north-2", "north-3", "south-1")
    writers = [psycopg.connect(fleet.sink_dsn) for _ in devices]
    seqs, pending, kept = dict.fromkeys(devices, 0), {device: [] for device in devices}, set()  # type: ignore[var-annotated]
    found: list[tuple[str, int]] = []
    with server.client(fleet.key("north")) as client:
        cursor = ask(client, None)["next"]
        for _ in range(240):
            at = dice.randrange(4)
            device, writer = devices[at], writers[at]
            step = dice.random()
            if step < 0.6:
                seqs[device] += 1
                put(writer, fleet, device, seqs[device])
                pending[device].append(seqs[device])
            elif step < 0.9:
                writer.commit()
                kept |= {(device, seq) for seq in pending[device]}
                pending[device] = []
            else:
                writer.rollback()
                pending[device] = []
            if dice.random() < 0.3:
                page = ask(client, cursor, limit=3)
                found += [(one["device"], one["seq"]) for one in page["items"]]
                cursor = page["next"]
        for device, writer in zip(devices, writers, strict=True):
            writer.commit()
            kept |= {(device, seq) for seq in pending[device]}
            writer.close()
        rest, _ = follow(client, cursor, 3)
        again, _ = follow(client, None, 7)
    found += rest
    assert len(found) == len(set(found)) and set(found) == {one for one in kept if one[0] != "south-1"}
    assert again == found, "the order is the same for who comes later"


def test_a_feed_waits_for_the_first_packet(fleet: Fleet) -> None:
    with (
        running(api_settings(fleet, feed_poll_ms=20, streams_per_key=1)) as server,
        server.client(fleet.key("north")) as client,
    ):
        cursor = ask(client, "end")["next"]
        assert ask(client, cursor, wait_s=0.05)["items"] == []
        answers: list[dict[str, Any]] = []
        waiter = threading.Thread(target=lambda: answers.append(ask(client, cursor, wait_s=30)))
        waiter.start()
        fleet.packet("north-1", NOW, [(SPEED.number, 0, 4.0, 0)])
        waiter.join(PATIENCE_S)
        assert [one["seq"] for one in answers[0]["items"]] == [1]
        assert ask(client, cursor, wait_s=0)["items"] == answers[0]["items"]


def test_who_comes_too_late_is_told_and_begins_anew(fleet: Fleet, server: Server) -> None:
    long_ago = NOW - timedelta(hours=5)
    with server.client(fleet.key("north")) as client:
        fleet.packet("north-1", long_ago, [(SPEED.number, 0, 4.0, 0)])
        first = ask(client, None)
        fleet.packet("north-1", long_ago, [(SPEED.number, 1_000, 5.0, 0)])
        assert Compactor(fleet.sink_dsn).run(ms_of(NOW), 3_600).packets == 2
        late = client.get(PATH, params={"after": first["next"]})
        assert (late.status_code, late.json()["code"]) == (410, "cursor_too_old")
        with server.client(fleet.key("south")) as other:
            assert ask(other, ask(other, None)["next"])["items"] == []
        cursor = ask(client, "end")["next"]
        fleet.packet("north-1", NOW, [(SPEED.number, 0, 6.0, 0)])
        assert [one["seq"] for one in ask(client, cursor)["items"]] == [3]
        with psycopg.connect(fleet.dsn) as connection:
            connection.execute("UPDATE packet_feed SET feed_id = feed_id + 1")
        anew = client.get(PATH, params={"after": cursor})
        assert (anew.status_code, anew.json()["code"]) == (410, "feed_restarted")
        assert client.get(PATH, params={"after": "nonsense"}).json()["code"] == "bad_cursor"
