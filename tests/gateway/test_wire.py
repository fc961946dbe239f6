"""Our reading of MQTT against paho's: the same packets, cut anywhere, with any properties."""

from __future__ import annotations

import paho.mqtt.client as mqtt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt import _packet as paho_packet
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from contracts.topics import ACK_PROPERTY
from gateway.wire import Packet, ProtocolError, next_packet, read_publish

pairs = st.lists(st.just(ACK_PROPERTY) | st.tuples(st.text("abc", max_size=5), st.text("1é", max_size=5)), max_size=3)


def publish(
    topic: str, payload: bytes, packet_id: int, retain: bool, users: list[tuple[str, str]], expiry: int
) -> bytes:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if users:
        properties.UserProperty = users
    if expiry:
        properties.MessageExpiryInterval = expiry
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + (packet_id.to_bytes(2, "big") if packet_id else b"")
    body += bytes(properties.pack()) + payload  # type: ignore[no-untyped-call]
    head = bytearray([0x30 | (2 if packet_id else 0) | retain])
    size = len(body)
    while True:
        size, low = divmod(size, 128)
        head.append(low | (0x80 if size else 0))
        if not size:
            return bytes(head) + body


packets = st.builds(
    publish,
    topic=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    payload=st.binary(max_size=300),
    packet_id=st.integers(0, 65535),
    retain=st.booleans(),
    users=pairs,
    expiry=st.integers(0, 2**32 - 1),
)


@given(raw=packets)
def test_a_publish_reads_as_paho_reads_it(raw: bytes) -> None:
    packet = next_packet(raw, 0)
    assert packet is not None and packet.end == len(raw)
    ours = read_publish(raw, packet)
    theirs = paho_packet.decode_publish(raw[0], bytearray(raw[packet.start :]), mqtt.MQTTv5)
    assert ours.topic.encode() == theirs.topic
    assert (ours.payload, ours.packet_id, ours.retained) == (theirs.payload, theirs.mid, theirs.retain)
    assert ours.asked == (ACK_PROPERTY in getattr(theirs.properties, "UserProperty", ()))


@given(raws=st.lists(packets, min_size=1, max_size=5), cut=st.integers(0, 2_000))
def test_a_stream_cut_anywhere_gives_the_same_packets(raws: list[bytes], cut: int) -> None:
    stream, at, found = b"".join(raws), 0, []
    first = stream[: cut % (len(stream) + 1)]
    while (packet := next_packet(first, at)) is not None:
        found.append(first[at : packet.end])
        at = packet.end
    while (packet := next_packet(stream, at)) is not None:
        found.append(stream[at : packet.end])
        at = packet.end
    assert found == raws


@given(raw=st.binary(max_size=60))
def test_noise_is_a_protocol_error_or_a_publish(raw: bytes) -> None:
    try:
        packet = next_packet(raw, 0)
        if packet:
            read_publish(raw, packet)
    except ProtocolError as error:
        assert "packet" in str(error) or "publish" in str(error)


def test_lengths_end_after_four_bytes() -> None:
    assert next_packet(b"\x30\xff\xff\xff\x7f", 0) is None
    with pytest.raises(ProtocolError):
        next_packet(b"\x30\xff\xff\xff\xff\x01", 0)


def test_a_publish_that_claims_more_than_it_has() -> None:
    with pytest.raises(ProtocolError):
        read_publish(b"\x30\x04\x00\x01a\x7f", Packet(0x30, 2, 6))
    with pytest.raises(ProtocolError):
        read_publish(b"\x30\x02\xff\xff", Packet(0x30, 2, 4))
