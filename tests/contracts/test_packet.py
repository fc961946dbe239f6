"""Packet format 1: what is written is read, what is damaged is refused with a reason."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Rejected
from contracts.packet import (
    MAX_FRAME_BYTES,
    PREFIX_BYTES,
    Block,
    DoubleBlock,
    Gap,
    Header,
    Packet,
    PacketError,
    current_fingerprint,
    decode_header,
    decode_packet,
    encode_packet,
    seal,
    writer_schemas,
)

GOLDEN = Path(__file__).parents[1] / "golden"
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text("abcXYZ019_-", min_size=1, max_size=64)


@st.composite
def arrays(
    draw: st.DrawFn, values: st.SearchStrategy[object]
) -> tuple[tuple[int, ...], tuple[object, ...], tuple[int, ...]]:
    size = draw(st.integers(0, 6))
    offsets = draw(st.tuples(*[int32] * size))
    qualities = draw(st.one_of(st.just(()), st.tuples(*[st.integers(0, 127)] * size)))
    return offsets, draw(st.tuples(*[values] * size)), qualities


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    blocks = tuple(
        Block(draw(st.integers(1, 30000)), draw(st.integers(-9, 6)), draw(int64), o, v, q)  # type: ignore[arg-type]
        for o, v, q in draw(st.lists(arrays(int64), max_size=3))
    )
    doubles = tuple(
        DoubleBlock(draw(st.integers(1, 30000)), o, v, q)  # type: ignore[arg-type]
        for o, v, q in draw(st.lists(arrays(st.floats(allow_nan=False)), max_size=2))
    )
    gaps = tuple(Gap(*row) for row in draw(st.lists(st.tuples(int64, int64, int32, int32, int64, int64), max_size=2)))
    samples = sum(len(block.offsets_ms) for block in blocks) + sum(len(block.offsets_ms) for block in doubles)
    header = Header(
        draw(names), draw(names), draw(st.integers(1, 2**40)), draw(int64), draw(st.integers(1, 2**60)),
        draw(st.integers(0, 2)), draw(int64), draw(int64), draw(st.booleans()), samples,
    )  # fmt: skip
    return Packet(header, blocks, doubles, gaps)


def sample_packet() -> Packet:
    header = Header("acme", "car-001", 3, -42, 7, 0, 1_700_000_000_000, 12_345, True, 5)
    blocks = (
        Block(1, -2, 8_000, (0, 100, 200), (0, 5, -5)),
        Block(20, -1, 9_000, (50,), (7,), (64,)),
    )
    return Packet(header, blocks, (DoubleBlock(21, (10,), (88.5,)),), (Gap(1, 3, 1, 0, 3, 150),))


@given(packets())
def test_a_packet_survives_the_wire(packet: Packet) -> None:
    frame = encode_packet(packet)
    assert decode_packet(frame) == packet
    assert decode_header(frame) == packet.header
    assert encode_packet(packet) == frame


@pytest.mark.parametrize("version", ["packet_v1"])
def test_golden_files_stay_decodable(version: str) -> None:
    frame = (GOLDEN / f"{version}.bin").read_bytes()
    assert decode_packet(frame) == sample_packet()
    assert frame[2:PREFIX_BYTES] in writer_schemas()
    assert json.loads((GOLDEN / f"{version}.json").read_text())["fingerprint"] == frame[2:PREFIX_BYTES].hex()


@given(st.data())
def test_every_flipped_bit_is_noticed(data: st.DataObject) -> None:
    frame = bytearray(encode_packet(sample_packet()))
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PacketError):
        decode_header(bytes(frame))


@given(st.integers(0, len(encode_packet(sample_packet())) - 1))
def test_a_truncated_frame_is_refused(size: int) -> None:
    with pytest.raises(PacketError):
        decode_header(encode_packet(sample_packet())[:size])


@given(st.binary(max_size=300))
def test_any_body_with_a_right_checksum_is_a_packet_or_refused(body: bytes) -> None:
    frame = seal(b"\xc3\x01" + current_fingerprint() + body)
    try:
        assert decode_packet(frame).header.seq >= 1
    except Rejected as error:
        assert error.reason in {"bad_header", "bad_body", "bad_name"}


def forged_array_count() -> bytes:
    """A body whose first array claims two thousand million items (zig-zag varint) and holds none."""
    whole = encode_packet(Packet(Header("acme", "car-001", 1, 1, 1, 0, 0, 0, True, 0)))
    return seal(whole[:-7] + bytes.fromhex("80d0acf30e"))


def test_forged_array_counts_are_refused_without_taking_memory() -> None:
    assert decode_header(forged_array_count()).device == "car-001"
    with pytest.raises(PacketError) as refused:
        decode_packet(forged_array_count())
    assert refused.value.reason == "bad_body"


def test_unknown_writers_and_oversize_are_named() -> None:
    frame = encode_packet(sample_packet())
    stranger = seal(frame[:2] + bytes(8) + frame[PREFIX_BYTES:-4])
    with pytest.raises(PacketError, match="unknown_fingerprint"):
        decode_header(stranger)
    with pytest.raises(PacketError, match="too_large"):
        decode_header(bytes(MAX_FRAME_BYTES + 1))
    many = tuple(range(MAX_FRAME_BYTES))
    with pytest.raises(PacketError, match="split the samples"):
        encode_packet(Packet(Header("a", "b", 1, 1, 1, 0, 0, 0, True, len(many)), (Block(1, 0, 0, many, many),)))


def test_header_and_arrays_must_agree() -> None:
    wrong_count = Packet(Header("a", "b", 1, 1, 1, 0, 0, 0, True, 3), (Block(1, 0, 0, (0,), (0,)),))
    uneven = Packet(Header("a", "b", 1, 1, 1, 0, 0, 0, True, 1), (Block(1, 0, 0, (0,), (0, 1)),))
    for packet in (wrong_count, uneven):
        with pytest.raises(PacketError, match="bad_body"):
            decode_packet(encode_packet(packet))


def test_crc_is_the_ieee_one_little_endian() -> None:
    frame = encode_packet(sample_packet())
    assert struct.unpack("<I", frame[-4:])[0] == zlib.crc32(frame[:-4])
