"""The archive names nobody of a crash: linkages are left out by hash and size, everything else stays as it was."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.edr.wire import CapsuleParcel, Linkage, Message, Notice, encode_body, pieces_of
from contracts.packet import Header, Lane, Parcel, encode_parcel
from contracts.stamp import DeadLetter, Stamp, encode_dead_letter, encode_stamp
from stream_jobs.parquet import Place, RawRecord, write_files
from stream_jobs.withheld import STAND_IN_BYTES, for_archive, stand_in
from tests.gateway.samples import NOW_MS, frame

VIN = "WVWZZZ1KZ00000000"
EVENT = "00ff-1-5"
LINKAGE = Linkage(EVENT, NOW_MS, True, VIN, "driver-7", 490_117_000, 84_000_000, 400)
OTHERS: tuple[Message, ...] = (
    Notice(EVENT, "part563-2024", "aftermarket_device", "delta_v", 1, 31_000, 523, ()),
    CapsuleParcel(EVENT, 3, bytes(900)), *pieces_of(EVENT, 3, "raw_motion", bytes(100)),
)  # fmt: skip


def parcel(message: Message) -> bytes:
    kind, body = encode_body(message)
    return encode_parcel(Parcel(Header("acme", "car-1", 1, 77, 5, int(Lane.PRIORITY), NOW_MS, 5, True, 0), kind, body))


def letter(channel: str = "priority") -> bytes:
    return encode_dead_letter(DeadLetter("future", "", f"v1/car-1/up/{channel}", "car-1", NOW_MS, 3))


def test_a_linkage_is_left_out_by_hash_and_size_and_only_it() -> None:
    data = parcel(LINKAGE)
    kept = for_archive(data, None, letters=False)
    assert kept == stand_in(data) and len(kept) == STAND_IN_BYTES and VIN.encode() in data
    assert hashlib.sha256(data).digest() in kept and int.from_bytes(kept[-4:], "big") == len(data)
    assert for_archive(kept, None, letters=False) == kept
    for other in map(parcel, OTHERS):
        assert for_archive(other, None, letters=False) == other == for_archive(other, letter(), letters=True)
    assert for_archive(None, None, letters=False) is None


@given(at=st.integers(0, len(parcel(LINKAGE)) - 1), bit=st.integers(0, 7))
def test_a_damaged_linkage_is_left_out_too(at: int, bit: int) -> None:
    """Also where the damage took the bytes that say what it is."""
    data = bytearray(parcel(LINKAGE))
    data[at] ^= 1 << bit
    for kept in (for_archive(bytes(data), None, letters=False), for_archive(bytes(data), letter(), letters=True)):
        assert kept == stand_in(bytes(data))


@pytest.mark.parametrize("header", [letter(), letter("live"), None, b"{}", b'{"mqtt_topic":7}'])
def test_dead_letters_that_hold_a_linkage_or_may_hold_one_are_left_out(header: bytes | None) -> None:
    assert for_archive(parcel(LINKAGE), header, letters=True) == stand_in(parcel(LINKAGE))
    assert for_archive(frame(), header, letters=True) == frame()


def test_what_came_by_another_topic_stays_as_it_is() -> None:
    assert for_archive(b"no packet", letter("live"), letters=True) == b"no packet"
    assert for_archive(b"no packet", letter(), letters=True) == stand_in(b"no packet")


def test_files_of_such_topics_are_their_owner_s_alone(tmp_path: Path) -> None:
    record = RawRecord(0, b"car-1", encode_stamp(Stamp(NOW_MS, 7, 3)), b"bytes")
    for private, topic in ((True, "t.priority"), (False, "t.live")):
        (one,) = write_files(tmp_path, Place(topic, uuid4(), 0), [record], private=private)
        mode = stat.S_IMODE((tmp_path / one.path).stat().st_mode)
        assert (mode == 0o600) is private
        assert pq.read_table(tmp_path / one.path, partitioning=None)["bytes"].to_pylist() == [b"bytes"]
