"""Parcels into a real store: what is believed, what is refused, what repeats, and that nothing is counted twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from contracts.commands import decode_command
from contracts.edr.ledger import EVIDENCE, Entry, chain_breaks
from contracts.edr.record import Attachment, ElementValue
from contracts.edr.wire import CapsuleParcel, pieces_of, read_receipt, receipted_sha256
from contracts.stamp import Stamp, encode_stamp
from stream_jobs.evidence.intake import Place, Raw
from stream_jobs.evidence.waiting import Sweeper
from stream_jobs.sinks.connection import drop_all
from tests.contracts.edr.evidence import record
from tests.stream_jobs.evidence_kit import NOW_MS, Desk, Recorder, make_desk, make_recorders, root_of, signer


@pytest.fixture
def recorders(role_dsn: Callable[[str], str]) -> dict[str, Recorder]:
    kinds = {"north-1": "simulated", "north-2": "device", "south-1": "simulated"}
    return {one.device: one for one in make_recorders(role_dsn, kinds)}


@pytest.fixture
def desk(role_dsn: Callable[[str], str], schema_dsn: str) -> Any:
    yield make_desk(role_dsn, schema_dsn, frozenset({root_of(signer(b"north-2"))}))
    drop_all()


def receipts(desk: Desk) -> list[tuple[str, bytes]]:
    found = desk.rows("SELECT kafka_key, kafka_value FROM outbox WHERE topic = 'commands' ORDER BY outbox_id")
    return [(device, read_receipt(decode_command(bytes(value))).sha256) for device, value in found]


def events(desk: Desk, kind: str) -> list[dict[str, Any]]:
    found = desk.rows("SELECT kafka_value FROM outbox WHERE topic = 'events' ORDER BY outbox_id")
    return [event for (value,) in found if (event := json.loads(bytes(value)))["kind"] == kind]


def asides(desk: Desk) -> list[str]:
    return [reason for (reason,) in desk.rows("SELECT reason FROM evidence_asides ORDER BY aside_id")]


def sha(parcel: CapsuleParcel) -> bytes:
    return hashlib.sha256(parcel.capsule).digest()


def test_a_crash_from_notice_to_receipt(desk: Desk, recorders: dict[str, Recorder]) -> None:
    car = recorders["north-1"]
    capsule = car.capsule()
    linkage = car.linkage(capsule.event_id)
    outcome = desk.take(car, car.notice(capsule.event_id), linkage, capsule)
    assert dict(outcome.counts) == {"stored": 3} and outcome.next_offset == 3
    assert desk.rows("SELECT capsule FROM evidence_capsules") == [(capsule.capsule,)]
    elements = desk.rows(
        "SELECT status, count(*), count(steps), count(saturated_from_ms) FROM evidence_elements GROUP BY 1"
    )
    assert ("recorded", 2, 2, 1) in elements and len(elements) == 2
    speed = desk.rows("SELECT steps, first, step_us, resolution FROM evidence_elements WHERE name = 'speed'")[0]
    assert speed[0] == [41] * 10 + [None] and speed[1:3] == (-10, 500_000)
    assert receipts(desk) == [("north-1", receipted_sha256(linkage)), ("north-1", sha(capsule))]
    (told,) = events(desk, "crash_notice")
    assert (told["device"], told["tenant"], told["speed_kmh"]) == ("north-1", "north", 52.3)
    assert "latitude" not in json.dumps(told) and "WVW" not in json.dumps(told)
    assert desk.rows("SELECT ranges::text FROM evidence_ranges") == [("{[1,4)}",)]
    assert desk.rows("SELECT evidence_packets, missing::text FROM ledger") == [(3, "{}")]


def test_the_same_records_of_the_log_again_change_nothing(desk: Desk, recorders: dict[str, Recorder]) -> None:
    car = recorders["north-1"]
    desk.take(car, car.capsule(), car.linkage(car.capsule().event_id))
    before = desk.rows("SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM evidence_log)")
    assert dict(desk.store.take("priority", desk.log, NOW_MS).counts) == {}
    assert desk.rows("SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM evidence_log)") == before


def test_a_device_that_repeats_hears_a_receipt_of_its_own_each_time(desk: Desk, recorders: dict[str, Recorder]) -> None:
    car = recorders["north-1"]
    capsule = car.capsule()
    linkage = car.linkage(capsule.event_id)
    desk.take(car, capsule, linkage, car.notice(capsule.event_id))
    again = desk.take(car, capsule, linkage, car.notice(capsule.event_id))
    assert dict(again.counts) == {"repeated": 3}
    assert [digest for _, digest in receipts(desk)] == [sha(capsule), receipted_sha256(linkage)] * 2
    commands = desk.rows("SELECT kafka_value FROM outbox WHERE topic = 'commands'")
    assert len({decode_command(bytes(value)).nonce for (value,) in commands}) == 4
    assert len(desk.rows("SELECT FROM evidence_records")) == len(events(desk, "crash_notice")) == 1


def test_a_chain_may_arrive_in_any_order(desk: Desk, recorders: dict[str, Recorder]) -> None:
    car = recorders["north-1"]
    first, second, third = car.capsule(), car.capsule(), car.capsule()
    assert dict(desk.take(car, third, first, second).counts) == {"stored": 3}
    assert [n for (n,) in desk.rows("SELECT record_no FROM evidence_records ORDER BY entry_no")] == [3, 1, 2]


def forged(parcel: CapsuleParcel, at: int) -> CapsuleParcel:
    data = bytearray(parcel.capsule)
    data[at] ^= 1
    return replace(parcel, capsule=bytes(data))


def test_what_is_not_believed_is_kept_aside_with_an_alarm_and_never_answered(
    desk: Desk, recorders: dict[str, Recorder]
) -> None:
    car, other = recorders["north-1"], recorders["south-1"]
    good, second = car.capsule(), car.capsule()
    desk.take(car, good)
    fork = replace(car, record_no=1, previous=bytes([9] * 32)).capsule()
    twin = replace(car, record_no=0, previous=bytes(32)).capsule((Attachment("imu", bytes(32), 5),))
    thief = replace(other, recorder_id=car.recorder_id, record_no=7).capsule()
    borrowed = replace(other, key=car.key).capsule()
    wrong = [
        (car, forged(second, len(second.capsule) // 2), "malformed_evidence"),
        (car, replace(second, record_no=9), "wrong_parcel"),
        (car, fork, "chain_conflict"),
        (car, twin, "record_conflict"),
        (other, thief, "foreign_recorder"),
        (other, borrowed, "foreign_key"),
        (recorders["north-2"], replace(recorders["north-2"], key=signer(b"x")).capsule(), "unknown_root"),
    ]
    for sender, parcel, reason in wrong:
        outcome = desk.take(sender, parcel)
        assert dict(outcome.reasons) == {reason: 1}
    assert asides(desk) == [reason for _, _, reason in wrong]
    assert [event["reason"] for event in events(desk, "crash_record_refused")] == asides(desk)
    assert receipts(desk) == [("north-1", sha(good))]
    again = desk.take(car, fork)
    assert dict(again.counts) == {"refused": 1}
    stored = desk.rows("SELECT bytes FROM evidence_asides WHERE reason = 'chain_conflict'")
    assert len(stored) == 2 and len(events(desk, "crash_record_refused")) == len(wrong) + 1


def test_a_capsule_signed_by_another_key_or_expired_is_refused(desk: Desk, recorders: dict[str, Recorder]) -> None:
    car = recorders["north-2"]
    assert dict(desk.take(car, car.capsule(source="aftermarket_device")).counts) == {"stored": 1}
    late = desk.append(car, car.parcel(car.capsule()))
    stamp = encode_stamp(Stamp(NOW_MS + 20 * 365 * 86_400_000, car.device_key, car.tenant_id))
    outcome = desk.store.take("priority", [replace(late[0], stamp=stamp)], NOW_MS)
    assert dict(outcome.reasons) == {"bad_certificates": 1}


def test_strangers_and_clones_explain_no_sequence_number(
    desk: Desk, recorders: dict[str, Recorder], schema_dsn: str
) -> None:
    car = recorders["north-1"]
    with psycopg.connect(schema_dsn) as connection:
        connection.execute(
            "INSERT INTO seen_ranges VALUES (%s, 1, 5, %s, '{}', 0, 0, 0)", (car.device_key, car.tenant_id)
        )
    frames = [
        car.parcel(car.notice("00" * 16 + "-1-1")),
        car.parcel(car.notice("00" * 16 + "-1-1"), nonce=5, device="north-2"),
        b"no frame at all",
    ]
    raws = desk.append(car, *frames)
    raws.append(Raw(Place(desk.topic_id, 0, 3), None, b"no stamp"))
    outcome = desk.store.take("priority", raws, NOW_MS)
    assert asides(desk) == ["identity_conflict", "wrong_device", "not_a_packet", "bad_stamp"]
    assert outcome.counts["refused"] == 4 and desk.rows("SELECT FROM evidence_ranges") == []


def test_a_value_that_the_store_refuses_is_kept_aside_alone(desk: Desk, recorders: dict[str, Recorder]) -> None:
    """``first`` means nothing for a single value, so no rule of a profile bounds it; the column does."""
    car = recorders["north-1"]
    plain = record()
    large = ElementValue("max_delta_v_longitudinal", (-25,), first=2**63)
    missing = tuple(name for name in plain.not_available if name != large.name)
    poison = car.capsule(made=replace(plain, elements=(*plain.elements, large), not_available=missing))
    outcome = desk.take(car, poison, car.linkage(poison.event_id))
    assert dict(outcome.reasons) == {"store_refused": 1} and outcome.counts["stored"] == 1
    assert desk.rows("SELECT FROM evidence_records") == desk.rows("SELECT FROM evidence_owners") == []
    assert [kind for (kind,) in desk.rows("SELECT kind FROM evidence_log ORDER BY entry_no")] == ["aside", "linkage"]


def test_attachments_in_any_order_before_and_after_their_capsule(desk: Desk, recorders: dict[str, Recorder]) -> None:
    car = recorders["north-1"]
    raw, later = bytes(range(256)) * 300, b"later" * 999
    claims = tuple(
        Attachment(name, hashlib.sha256(data).digest(), len(data)) for name, data in (("imu", raw), ("b", later))
    )
    capsule = car.capsule(claims)
    early = list(pieces_of(capsule.event_id, 1, "imu", raw))
    desk.take(car, *reversed(early))
    assert receipts(desk) == []
    desk.take(car, capsule)
    assert [digest for _, digest in receipts(desk)] == [claims[0].sha256, sha(capsule)]
    desk.take(car, *pieces_of(capsule.event_id, 1, "b", later))
    assert receipts(desk)[-1] == ("north-1", claims[1].sha256)
    again = desk.take(car, early[0])
    assert dict(again.counts) == {"repeated": 1} and receipts(desk)[-1] == ("north-1", claims[0].sha256)
    assert desk.rows("SELECT state, claimed_by FROM evidence_attachments") == [("whole", sha(capsule))] * 2
    joined = desk.rows(
        "SELECT string_agg(data, '' ORDER BY number) FROM evidence_pieces WHERE sha256 = %s", claims[0].sha256
    )
    assert bytes(joined[0][0]) == raw


def test_pieces_that_lie_and_pieces_without_end_are_refused(desk: Desk, recorders: dict[str, Recorder]) -> None:
    car = recorders["north-1"]
    event = car.capsule().event_id
    real = b"x" * 100_000
    pieces = list(pieces_of(event, 1, "imu", real))
    other = list(pieces_of(event, 1, "imu", b"y" * 100_000))
    liar = [replace(piece, sha256=pieces[0].sha256) for piece in other]
    assert dict(desk.take(car, *pieces[:-1]).counts) == {"stored": len(pieces) - 1}
    assert dict(desk.take(car, liar[0]).reasons) == {"piece_conflict": 1}
    assert dict(desk.take(car, liar[-1]).reasons) == {"broken_attachment": 1}
    assert dict(desk.take(car, replace(pieces[-1], name="else")).reasons) == {"piece_conflict": 1}
    assert dict(desk.take(car, pieces[-1]).counts) == {"stored": 1}
    endless = list(pieces_of(event, 1, "more", b"z" * 150_000))
    assert desk.take(car, *endless).reasons["attachment_quota"] > 0


def test_data_that_nobody_claims_free_the_quota_when_they_waited_long_enough(
    desk: Desk, recorders: dict[str, Recorder]
) -> None:
    """A crash whose last piece never came must not refuse every raw recording of that device for ever."""
    car, day_ms = recorders["north-1"], 86_400_000
    torn = list(pieces_of(car.capsule().event_id, 1, "imu", bytes(190_000)))
    raw = b"\1" * 60_000
    claim = Attachment("imu", hashlib.sha256(raw).digest(), len(raw))
    later = car.capsule((claim,))
    pieces = list(pieces_of(later.event_id, later.record_no, "imu", raw))
    whole = list(pieces_of("ab" * 16 + "-1-1", 1, "imu", b"whole, and of no record"))
    desk.take(car, *torn[:-1], now_ms=NOW_MS)
    desk.take(car, *whole, now_ms=NOW_MS + day_ms)
    assert desk.take(car, later, *pieces, now_ms=NOW_MS + 2 * day_ms).reasons["attachment_quota"] == 1
    sweeper = Sweeper(desk.store.dsn, 3 * day_ms)
    assert [sweeper.sweep(NOW_MS + days * day_ms) for days in (3, 4, 4)] == [0, 1, 0]
    assert desk.rows("SELECT count(*) FROM evidence_pieces WHERE event_id = %s", torn[0].event_id) == [(0,)]
    again = desk.take(car, *pieces, now_ms=NOW_MS + 4 * day_ms)
    assert dict(again.counts) == {"repeated": 1, "stored": 1} and receipts(desk)[-1][1] == claim.sha256
    assert sweeper.sweep(NOW_MS + 99 * day_ms) == 1, "the one that was whole and never claimed"
    assert desk.rows("SELECT name, state, claimed_by IS NOT NULL FROM evidence_attachments") == [("imu", "whole", True)]
    assert desk.rows("SELECT count(*) FROM evidence_pieces") == [(2,)]
    desk.take(car, *torn[:-1], now_ms=NOW_MS + 99 * day_ms)
    assert sweeper.sweep(NOW_MS + 100 * day_ms) == 0, "sent again, they wait again"


def test_claimed_data_stay_whoever_asks(desk: Desk, recorders: dict[str, Recorder]) -> None:
    car = recorders["north-1"]
    claim = Attachment("imu", hashlib.sha256(b"raw").digest(), 3)
    capsule = car.capsule((claim,))
    desk.take(car, capsule, *pieces_of(capsule.event_id, 1, "imu", b"raw"))
    forbidden = (
        "DELETE FROM evidence_pieces", "UPDATE evidence_pieces SET data = 'x'", "DELETE FROM evidence_attachments",
        "UPDATE evidence_attachments SET claimed_by = NULL", "TRUNCATE evidence_attachments",
        "CREATE TEMP TABLE evidence_attachments (device_key int, event_id text, sha256 bytea, claimed_by bytea);"
        " DELETE FROM evidence_pieces",
    )  # fmt: skip
    for dsn in (desk.store.dsn, desk.owner_dsn):
        for statement in forbidden:
            with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_the_log_of_a_tenant_holds_and_is_its_own(desk: Desk, recorders: dict[str, Recorder]) -> None:
    north, south = recorders["north-1"], recorders["south-1"]
    for _ in range(3):
        capsule = north.capsule()
        desk.take(north, capsule, north.linkage(capsule.event_id), forged(capsule, 900))
        desk.take(south, south.capsule())
    for recorder, count in ((north, 9), (south, 3)):
        rows = desk.rows(
            "SELECT entry_no, at_ms, kind, subject, content_sha256, previous_sha256, sha256 FROM evidence_log"
            " WHERE tenant_id = %s ORDER BY entry_no",
            recorder.tenant_id,
        )
        entries = [Entry(row[0], row[1], (row[2], row[3], row[4].hex()), row[5], row[6]) for row in rows]
        assert len(entries) == count and chain_breaks(EVIDENCE, recorder.tenant_id, entries, entries[-1]) == []
