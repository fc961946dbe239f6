"""Dead letters over HTTP: who sees what, what can be read, and a letter sent again is stored once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.auth import EVIDENCE
from api.keys import ROLES
from api.letters import open_letter
from api.routes.letters import ADMIN
from contracts.edr.wire import Linkage, encode_body
from contracts.packet import Header, Lane, Parcel, encode_parcel
from contracts.stamp import decode_stamp
from tests.api.fix_api import Fleet, Server
from tests.api.fix_letters import Post, post
from tests.fix_cut import cut_at_commit

__all__ = ["post"]

NOW = datetime.now(UTC).replace(microsecond=0)
YEAR = timedelta(days=365)
LIST = "/api/v1/dead-letters"


def resubmit(client: httpx.Client, letter: str, **repair: Any) -> httpx.Response:
    return client.post(f"{LIST}/{letter}/resubmit", json=repair or None)


def values(post: Post) -> list[tuple[Any, ...]]:
    return post.rows("SELECT device, boot_epoch, seq, value FROM readings ORDER BY measured_at, value")


def test_letters_are_listed_and_looked_into(fleet: Fleet, server: Server, post: Post) -> None:
    early = post.refuse(post.frame(NOW + YEAR, 7, 100, 200), NOW - timedelta(hours=2), "future", seq=7)
    torn = bytearray(post.frame(NOW, 8, 300))
    torn[-1] ^= 1
    late = post.refuse(bytes(torn), NOW, "bad_crc")
    post.refuse(b"\x00 nothing", NOW - timedelta(hours=1), "not_a_packet")
    post.arrive(post.frame(NOW, 9, 400, tenant="south"), NOW - timedelta(minutes=30))  # quarantined: wrong_device
    with server.client(fleet.key("north", "admin")) as client:
        body = client.get(LIST).json()
        assert [(one["reason"], one["packets"]) for one in body["items"]] == [
            ("bad_crc", 1), ("future", 1), ("not_a_packet", 1),
        ]  # fmt: skip
        told = [(one["kept_by"], one["reason"], one["device"], one["seq"]) for one in body["letters"]]
        assert told == [
            ("gateway", "bad_crc", "north-1", None), ("stream_job", "wrong_device", "north-1", 9),
            ("gateway", "not_a_packet", "north-1", None), ("gateway", "future", "north-1", 7),
        ]  # fmt: skip
        pages: list[str] = []
        cursor = None
        while True:
            page = client.get(LIST, params={"limit": 1} | ({"cursor": cursor} if cursor else {})).json()
            pages += [one["id"] for one in page["letters"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert pages == [one["id"] for one in body["letters"]]
        assert [one["id"] for one in client.get(LIST, params={"reason": "future"}).json()["letters"]] == [early]
        whole = client.get(f"{LIST}/{early}").json()
        assert whole["packet"]["fault"] == "" and whole["packet"]["boot_epoch"] == 1
        assert [(one["value"], one["unit"]) for one in whole["packet"]["readings"]] == [(1.0, "km/h"), (2.0, "km/h")]
        assert "ahead of now" in whole["obstacle"] and whole["resubmissions"] == []
        damaged = client.get(f"{LIST}/{late}").json()
        assert damaged["bytes_hex"] == bytes(torn).hex() and damaged["packet"]["fault"] == "bad_crc"
        assert damaged["packet"]["readings"][0]["value"] == 3.0 and "no packet" in damaged["obstacle"]
        refused = resubmit(client, late)
        assert (refused.status_code, refused.json()["code"]) == (422, "not_readable")
        assert client.get(f"{LIST}/g-{9:032x}-0-1").json()["code"] == "no_such_letter"
    with server.client(fleet.key("south", "admin")) as other:
        assert other.get(f"{LIST}/{early}").status_code == 404 and other.get(LIST).json()["letters"] == []
        assert resubmit(other, early).status_code == 404
    assert post.rows("SELECT count(*) FROM resubmissions") == [(0,)]


def test_a_repaired_letter_is_stored_once_however_often_it_is_sent(fleet: Fleet, server: Server, post: Post) -> None:
    ahead = NOW - timedelta(minutes=5) + YEAR
    letter = post.refuse(post.frame(ahead, 7, 100, 200), NOW, "future", seq=7)
    shift = -round(YEAR.total_seconds() * 1000)
    with server.client(fleet.key("north", "admin")) as client:
        still = resubmit(client, letter)
        assert (still.status_code, still.json()["code"]) == (422, "still_not_believed")
        assert still.json()["errors"][0]["parameter"] == "shift_ms"
        for _ in range(2):
            sent = resubmit(client, letter, shift_ms=shift)
            assert sent.status_code == 202 and sent.json()["sent"]
            (*_, last) = sent.json()["resubmissions"]
            assert (last["boot_epoch"], last["seq"], last["rescued"], last["stored"]) == (1, 7, False, False)
        other = resubmit(client, letter, shift_ms=shift + 1)
        assert (other.status_code, other.json()["code"]) == (422, "sent_otherwise")
        assert post.carry() == 2
        assert values(post) == [("north-1", 1, 7, 1.0), ("north-1", 1, 7, 2.0)]
        assert post.rows("SELECT packets, duplicates FROM seen_ranges") == [(1, 1)]
        again = resubmit(client, letter, shift_ms=shift)
        assert again.status_code == 200 and not again.json()["sent"] and post.carry() == 0
        shown = client.get(f"{LIST}/{letter}").json()
        assert [one["stored"] for one in shown["resubmissions"]] == [True, True] and shown["letter"]["sent_again"]
        assert {one["asked_by"][:4] for one in shown["resubmissions"]} == {"key:"}
        metrics = client.get("/metrics").text
    assert "fleetstream_api_resubmitted_total 2.0" in metrics
    ((missing, letters),) = post.rows("SELECT missing::text, dead_lettered_packets FROM ledger")
    assert (missing, letters) == ("{[1,7)}", 1)
    (stamp,) = post.rows("SELECT stamp FROM outbox WHERE topic = 'live' LIMIT 1")[0]
    assert decode_stamp(bytes(stamp)).tenant_id == fleet.tenants["north"]
    with psycopg.connect(fleet.dsn) as connection, pytest.raises(psycopg.errors.RestrictViolation):
        connection.execute("UPDATE resubmissions SET asked_by = 'nobody'")


def test_an_unrepaired_letter_goes_as_it_came(fleet: Fleet, server: Server, post: Post) -> None:
    frame = post.frame(NOW, 3, 500)
    letter = post.refuse(frame, NOW, "lane_mismatch", seq=3)
    with server.client(fleet.key("north", "admin")) as client:
        assert resubmit(client, letter).status_code == 202
        assert [bytes(one[0]) for one in post.rows("SELECT kafka_value FROM outbox WHERE topic = 'live'")] == [frame]
        post.carry()
        foreign = post.refuse(post.frame(NOW, 4, 600, tenant="acme"), NOW, "tenant_mismatch", seq=4)
        assert resubmit(client, foreign).json()["code"] == "tenant_mismatch"
        assert resubmit(client, foreign, take_over=True).status_code == 202
        post.carry()
        assert values(post) == [("north-1", 1, 3, 5.0), ("north-1", 1, 4, 6.0)]
        held = post.refuse(post.frame(NOW, 5, 700, nonce=78), NOW, "identity_conflict")
        assert resubmit(client, held).json()["code"] == "kept_by_device"
        fleet.execute("UPDATE devices SET revoked_at = now() WHERE device = 'north-1'")
        gone = post.refuse(post.frame(NOW, 6, 800), NOW, "unregistered", seq=6)
        assert resubmit(client, gone).json()["code"] == "unregistered"


def test_readings_that_were_not_believed_are_rescued_beside_their_packet(
    fleet: Fleet, server: Server, post: Post
) -> None:
    """A clock that jumped an hour within the packet: the store has two readings of three, and all bytes."""
    frame = post.frame(NOW - timedelta(hours=3), 5, *range(100, 103))
    jumped = post.frame(NOW - timedelta(hours=1), 6, *range(200, 203))
    post.arrive(frame, NOW - timedelta(hours=3))
    post.arrive(jumped, NOW - timedelta(hours=1, minutes=10) + timedelta(milliseconds=150))
    assert [row[2:] for row in values(post)] == [(5, 1.0), (5, 1.01), (5, 1.02), (6, 2.0), (6, 2.01)]
    with server.client(fleet.key("north", "admin")) as client:
        (letter,) = client.get(LIST, params={"kept_by": "stream_job"}).json()["letters"]
        assert letter["reason"] == "samples"
        for _ in range(2):
            sent = resubmit(client, letter["id"])
            assert sent.status_code == 202
        names = {(one["boot_epoch"], one["seq"], one["samples"]) for one in sent.json()["resubmissions"]}
        assert names == {(2, 1, 1)} and sent.json()["resubmissions"][0]["rescued"]
        assert post.carry() == 2
    assert [row[1:] for row in values(post)][-1] == (2, 1, 2.02)
    assert len(values(post)) == 6, "nothing is there twice"


def test_a_conflict_that_was_confirmed_is_rescued_under_an_epoch_of_its_own(
    fleet: Fleet, server: Server, post: Post
) -> None:
    post.arrive(post.frame(NOW - timedelta(minutes=3), 1, 100), NOW)
    for seq in (1, 2):
        post.arrive(post.frame(NOW - timedelta(minutes=2), seq, 200 + seq, nonce=99), NOW)
    with server.client(fleet.key("north", "admin")) as client:
        letters = client.get(LIST).json()["letters"]
        assert [one["reason"] for one in letters] == ["identity_conflict"] * 2
        for letter in (*letters, letters[0]):
            assert resubmit(client, letter["id"]).status_code == 202
    known = post.rows("SELECT kafka_value FROM outbox WHERE topic = 'epochs' ORDER BY outbox_id DESC LIMIT 1")
    assert b'"highest" : 2' in bytes(known[0][0]), "the gateways know the reserved epoch at once"
    assert post.carry() == 3
    assert {row[1:] for row in values(post)} == {(1, 1, 1.0), (2, 1, 2.02), (2, 2, 2.01)}
    assert post.rows("SELECT boot_epoch, missing::text FROM ledger ORDER BY 1") == [(1, "{}"), (2, "{}")]


def test_counts_for_many_letters_for_administrators(fleet: Fleet, server: Server, post: Post) -> None:
    letter = post.refuse(post.frame(NOW, 3, 500), NOW, "lane_mismatch", seq=3)
    for role in ROLES:
        ask_as(server, fleet.key("north", role), role, letter)


def ask_as(server: Server, key: str, role: str, letter: str) -> None:
    with server.client(key) as client:
        listed = client.get(LIST)
        assert listed.status_code == (200 if role in EVIDENCE else 403)
        if role in EVIDENCE:
            assert (listed.json()["letters"] is None) == (role not in ADMIN)
        expected = 200 if role in ADMIN else 403
        assert client.get(f"{LIST}/{letter}").status_code == expected
        assert resubmit(client, letter).status_code == (202 if role in ADMIN else 403)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_looked_into(data: bytes) -> None:
    opened = open_letter(data)
    assert opened.fault and opened.packet is None


@given(st.data())
def test_a_damaged_packet_is_never_called_sound(data: st.DataObject) -> None:
    frame = bytearray(Post(Fleet("", "", "")).frame(NOW, 1, *range(5)))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    assert open_letter(bytes(frame)).fault != ""


def test_a_crash_record_is_sent_again_without_being_shown(fleet: Fleet, server: Server, post: Post) -> None:
    """Its bytes are read through the custody log only, also by administrators."""
    linkage = Linkage("00" * 16 + "-1-5", 0, True, "WVWZZZ1KZ00000000", "d-17", 490_117_000, 84_000_000, 400)
    kind, body = encode_body(linkage)
    header = Header("north", "north-1", 1, 77, 12, int(Lane.PRIORITY), 0, 5, True, 0)
    frame = encode_parcel(Parcel(header, int(kind), body))
    letter = post.refuse(frame, NOW, "internal_error", seq=12)
    with server.client(fleet.key("north", "admin")) as client:
        told = client.get(f"{LIST}/{letter}").json()
        assert told["bytes_hex"] == "" and told["letter"]["size_bytes"] == len(frame) and told["obstacle"] is None
        assert b"WVW".hex() not in str(told) and "WVW" not in str(told)
        assert resubmit(client, letter).status_code == 202
    sent = post.rows("SELECT kafka_value FROM outbox WHERE topic = 'priority'")
    assert [bytes(value) for (value,) in sent] == [frame]


def test_a_sending_and_an_import_cut_at_their_commit_leave_nothing(
    fleet: Fleet, server: Server, post: Post, schema: str
) -> None:
    letter = post.refuse(post.frame(NOW, 3, 500), NOW, "lane_mismatch", seq=3)
    counts = (
        "SELECT (SELECT count(*) FROM resubmissions), (SELECT count(*) FROM outbox), (SELECT count(*) FROM devices)"
    )
    ((sent, waiting, devices),) = post.rows(counts)
    file = {"content": b"device,asset\nnew-1,New 1\n", "headers": {"Content-Type": "text/csv"}}
    with server.client(fleet.key("north", "admin")) as client:
        with cut_at_commit(fleet.dsn, schema):
            answers = [resubmit(client, letter), client.post("/api/v1/fleet/import", **file)]  # type: ignore[arg-type]
            assert [(one.status_code, one.json()["code"]) for one in answers] == [(503, "store_unavailable")] * 2
        assert post.rows(counts) == [(sent, waiting, devices)]
        assert resubmit(client, letter).status_code == 202
        assert client.post("/api/v1/fleet/import", **file).json()["devices_made"] == 1  # type: ignore[arg-type]
    assert post.carry() == 1
