"""The fast header reader gives the general decoder's answers: values, refusals and reasons."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Rejected
from contracts.packet import (
    PREFIX_BYTES,
    Header,
    Packet,
    decode_header,
    decode_packet,
    encode_packet,
    seal,
    verify_packet,
)
from gateway.header import Head, HeaderReader, head_of
from tests.gateway.samples import frame

TOPIC = "v1/car-1/up/live"
wide = st.integers(-(2**63), 2**63 - 1)
headers = st.builds(
    Header,
    tenant=st.text("abZ_9-", min_size=1, max_size=64),
    device=st.text("abZ_9-", min_size=1, max_size=64),
    boot_epoch=st.integers(1, 2**63 - 1),
    nonce=wide,
    seq=st.integers(1, 2**63 - 1),
    lane=st.integers(0, 2),
    base_ms=wide,
    mono_ms=wide,
    clock_trusted=st.booleans(),
    samples=st.integers(0, 2**31 - 1),
)


def answer(reader: HeaderReader, frame_bytes: bytes) -> Head | str:
    try:
        return reader.read(frame_bytes, TOPIC)
    except Rejected as error:
        return error.reason


def truth(frame_bytes: bytes) -> Head | str:
    try:
        return head_of(decode_header(frame_bytes))
    except Rejected as error:
        return error.reason


@given(first=headers, changes=st.lists(headers, max_size=4))
def test_equal_on_every_header_of_one_device(first: Header, changes: list[Header]) -> None:
    reader = HeaderReader()
    for other in (first, *changes):
        same_boot = Header(
            first.tenant, first.device, first.boot_epoch, first.nonce, other.seq, other.lane, other.base_ms,
            other.mono_ms, other.clock_trusted, other.samples,
        )  # fmt: skip
        for header in (same_boot, other):
            sealed = encode_packet(Packet(header))
            assert answer(reader, sealed) == truth(sealed) == head_of(header)


@given(tail=st.binary(max_size=40))
def test_equal_on_any_bytes_after_a_known_beginning(tail: bytes) -> None:
    reader, sound = HeaderReader(), frame()
    reader.read(sound, TOPIC)
    beginning = reader._beginnings[TOPIC][0]
    forged = seal(beginning + tail)
    assert answer(reader, forged) == truth(forged)
    for broken in (forged[:-1], sound[: len(beginning)], sound[:-1] + b"\x00"):
        assert answer(reader, broken) == truth(broken)


@given(at=st.integers(PREFIX_BYTES, 60), byte=st.integers(0, 255))
def test_equal_when_one_byte_is_forged_and_sealed_again(at: int, byte: int) -> None:
    reader, sound = HeaderReader(), frame()
    reader.read(sound, TOPIC)
    body = sound[:-4]
    at = min(at, len(body) - 1)
    forged = seal(body[:at] + bytes([byte]) + body[at + 1 :])
    assert answer(reader, forged) == truth(forged)


def test_memory_is_bounded() -> None:
    reader = HeaderReader(max_topics=10)
    for number in range(100):
        reader.read(frame(f"car-{number}"), f"v1/car-{number}/up/live")
        assert len(reader._beginnings) <= 10


@given(at=st.integers(0, 120), byte=st.integers(0, 255))
def test_verifying_a_packet_gives_the_verdict_of_decoding_it(at: int, byte: int) -> None:
    body = frame(samples=8)[:-4]
    at = PREFIX_BYTES + at % (len(body) - PREFIX_BYTES)
    forged = seal(body[:at] + bytes([byte]) + body[at + 1 :])
    results: list[Header | str] = []
    for check in (verify_packet, lambda data: decode_packet(data).header):
        try:
            results.append(check(forged))
        except Rejected as error:
            results.append(error.reason)
    assert results[0] == results[1]
