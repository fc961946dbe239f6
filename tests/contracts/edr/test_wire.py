"""Parcels on the priority lane: what is written is read, anything else is refused; golden bytes stay readable."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import grimp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.commands import Command, decode_command, encode_command
from contracts.edr.capsule import NO_PREVIOUS, ChainPlace, open_capsule, seal
from contracts.edr.errors import MalformedEvidence
from contracts.edr.record import Attachment
from contracts.edr.verify import verify_capsule
from contracts.edr.wire import (
    MAX_ATTACHMENT_BYTES,
    PIECE_BYTES,
    RECEIPT,
    AttachmentPiece,
    CapsuleParcel,
    Kind,
    Linkage,
    Message,
    Notice,
    Receipt,
    decode_body,
    encode_body,
    event_id,
    event_of,
    join,
    open_parcel,
    pieces_of,
    read_receipt,
    receipt_arguments,
    receipted_sha256,
)
from contracts.edr.x509 import X509Checks
from contracts.errors import Rejected
from contracts.packet import (
    Header,
    PacketError,
    Parcel,
    decode_header,
    decode_packet,
    decode_parcel,
    encode_parcel,
    is_parcel,
    verify_packet,
)
from tests.contracts.edr.evidence import NOW_MS, PROFILE, RECORDER_ID, record, signer

GOLDEN = Path(__file__).parents[2] / "golden"
EVENT = event_id(RECORDER_ID, 7, 1)
HEADER = Header("acme", "car-001", 3, -42, 9, 2, 1_700_000_000_000, 12_345, True, 0)
GOLDEN_MESSAGES: dict[str, Message] = {
    "notice": Notice(EVENT, "part563-2024", "simulated", "delta_v", 1, 31_000, 523, ("frontal_airbag_time_driver",)),
    "capsule": CapsuleParcel(EVENT, 2, b"sealed bytes"),
    "attachment_piece": next(pieces_of(EVENT, 2, "imu", bytes(range(200)))),
    "linkage": Linkage(EVENT, 1_700_000_000_000, True, "WVWZZZ1KZ00000000", None, 490_117_000, -83_000_000, 400),
}
texts = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), max_size=40)
int64 = st.integers(-(2**63), 2**63 - 1)
events = st.from_regex(r"[0-9a-f]{32}-[0-9]{1,9}-[0-9]{1,9}", fullmatch=True)
messages = st.one_of(
    st.builds(
        Notice, events, texts, texts, texts, int64, int64, st.none() | int64, st.lists(texts, max_size=4).map(tuple)
    ),
    st.builds(CapsuleParcel, events, int64, st.binary(min_size=1, max_size=90)),
    st.binary(min_size=1, max_size=90).map(lambda data: next(pieces_of(EVENT, 2, "imu", data))),
    st.builds(
        Linkage, events, int64, st.booleans(), st.none() | texts, st.none() | texts,
        st.none() | int64, st.none() | int64, st.none() | int64,
    ),
)  # fmt: skip


@given(messages)
def test_a_message_survives_the_wire(message: Message) -> None:
    kind, body = encode_body(message)
    frame = encode_parcel(Parcel(HEADER, kind, body))
    assert is_parcel(frame)
    assert open_parcel(frame) == (HEADER, message)
    assert decode_header(frame) == verify_packet(frame) == HEADER


@given(st.integers(0, 9), st.binary(max_size=80))
def test_any_other_body_is_refused(kind: int, body: bytes) -> None:
    with pytest.raises(MalformedEvidence):
        decode_body(kind, body)


@given(messages, st.data())
def test_a_touched_body_is_another_message_or_none(message: Message, data: st.DataObject) -> None:
    kind, body = encode_body(message)
    at = data.draw(st.integers(0, len(body) * 8 - 1))
    touched = bytearray(body)
    touched[at // 8] ^= 1 << at % 8
    try:
        assert decode_body(kind, bytes(touched)) != message
    except Rejected:
        return


@pytest.mark.parametrize("name", GOLDEN_MESSAGES)
def test_golden_parcels_stay_readable(name: str) -> None:
    frame = (GOLDEN / f"parcel_v1_{name}.bin").read_bytes()
    assert open_parcel(frame) == (HEADER, GOLDEN_MESSAGES[name])
    kind, body = encode_body(GOLDEN_MESSAGES[name])
    assert encode_parcel(Parcel(HEADER, kind, body)) == frame
    assert Kind(kind).name.lower() == name


def test_a_parcel_is_no_packet_and_keeps_to_its_lane() -> None:
    kind, body = encode_body(GOLDEN_MESSAGES["notice"])
    with pytest.raises(PacketError, match="not_a_packet"):
        decode_packet(encode_parcel(Parcel(HEADER, kind, body)))
    for wrong in (replace(HEADER, lane=0), replace(HEADER, samples=3)):
        with pytest.raises(PacketError, match="bad_header"):
            decode_parcel(encode_parcel(Parcel(wrong, kind, body)))
    with pytest.raises(PacketError, match="not_a_parcel"):
        decode_parcel((GOLDEN / "packet_v1.bin").read_bytes())
    with pytest.raises(PacketError, match="too_large"):
        encode_parcel(Parcel(HEADER, 2, bytes(200_000)))


@given(st.integers(1, 3 * PIECE_BYTES + 5), st.randoms(use_true_random=False))
def test_pieces_make_the_attachment_again_in_any_order(size: int, random: object) -> None:
    data = hashlib.shake_128(size.to_bytes(4, "big")).digest(size)
    pieces = list(pieces_of(EVENT, 2, "imu", data))
    shuffled = [*pieces, pieces[0]]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert join(shuffled) == data
    assert {receipted_sha256(piece) for piece in pieces} == {hashlib.sha256(data).digest()}
    if len(pieces) > 1:
        with pytest.raises(MalformedEvidence, match="missing"):
            join(pieces[1:])


def test_a_wrong_piece_is_named() -> None:
    data, other = bytes(2 * PIECE_BYTES), bytes([1]) * (2 * PIECE_BYTES)
    first, second = pieces_of(EVENT, 2, "imu", data)
    stranger = list(pieces_of(EVENT, 2, "imu", other))[1]
    with pytest.raises(MalformedEvidence, match="another attachment"):
        join([first, stranger])
    with pytest.raises(MalformedEvidence, match="does not have the hash"):
        join([first, replace(second, data=second.data[:-1] + b"x")])
    forged = replace(stranger, sha256=first.sha256)
    with pytest.raises(MalformedEvidence, match="claimed"):
        join([first, forged])
    with pytest.raises(MalformedEvidence, match="no pieces"):
        join([])
    for bad in (replace(second, pieces=3), replace(second, number=2), replace(second, name="a/b")):
        with pytest.raises(MalformedEvidence):
            encode_body(bad)
    for size in (0, MAX_ATTACHMENT_BYTES + 1):
        with pytest.raises(ValueError, match="attachment has"):
            next(pieces_of(EVENT, 2, "imu", bytes(size)))


def test_a_receipt_survives_the_commands_topic_and_odd_ones_are_refused() -> None:
    receipt = Receipt(EVENT, bytes(range(32)))
    command = Command("r1", "car-1", RECEIPT, 11, 5, receipt_arguments(receipt))
    assert read_receipt(decode_command(encode_command(command))) == receipt
    right = receipt_arguments(receipt)
    odd: list[dict[str, object]] = [{}, {"event_id": EVENT}]
    odd += [right | change for change in ({"sha256": "zz"}, {"sha256": "00"}, {"event_id": "a b"}, {"sha256": 5})]
    for arguments in odd:
        with pytest.raises(MalformedEvidence):
            read_receipt(replace(command, arguments=arguments))


def test_what_a_receipt_names() -> None:
    capsule, linkage = GOLDEN_MESSAGES["capsule"], GOLDEN_MESSAGES["linkage"]
    assert receipted_sha256(capsule) == hashlib.sha256(b"sealed bytes").digest()
    assert receipted_sha256(linkage) == hashlib.sha256(encode_body(linkage)[1]).digest()
    assert receipted_sha256(GOLDEN_MESSAGES["notice"]) is None


def test_only_the_linkage_has_room_for_who_where_and_when() -> None:
    told = {name for made in (Notice, CapsuleParcel, AttachmentPiece) for name in made.__slots__}
    assert not told & {"vin", "driver", "latitude_e7", "longitude_e7", "zero_at_ms"}


def test_an_attachment_is_claimed_under_the_signature() -> None:
    claim = Attachment("imu", hashlib.sha256(b"raw").digest(), 3)
    place = ChainPlace(RECORDER_ID, 1, NO_PREVIOUS, ())
    data = seal(replace(record(), attachments=(claim,)), PROFILE, place, signer())
    opened, faults = verify_capsule(data, X509Checks(), NOW_MS)
    assert opened is not None and opened.record.attachments == (claim,) and not faults
    plain = open_capsule(seal(record(), PROFILE, place, signer()))
    assert plain.record.attachments == () and event_of(plain) == event_id(RECORDER_ID, 7, 123_487_789)
    touched = data.replace(claim.sha256, bytes(32))
    opened, faults = verify_capsule(touched, X509Checks(), NOW_MS)
    assert opened is None and "attachments" in faults[0].place
    assert touched[faults[0].first_byte : faults[0].last_byte].find(bytes(32)) > 0
    _, strange = verify_capsule(data, X509Checks(), NOW_MS, (bytes(32),))
    assert [fault for fault in strange if "not a trusted one" in fault.what]
    assert verify_capsule(b"no capsule", X509Checks(), NOW_MS)[1]


def test_nothing_else_in_the_room_needs_a_cryptographic_library() -> None:
    graph = grimp.build_graph("contracts", include_external_packages=True, cache_dir=None)
    assert graph.find_modules_that_directly_import("cryptography") == {"contracts.edr.x509"}
    assert not graph.find_modules_that_directly_import("contracts.edr.x509")
