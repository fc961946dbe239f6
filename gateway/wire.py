"""MQTT 5 packets cut out of a stream of bytes, and PUBLISH read as far as the gateway needs it.

paho builds a property object for every publish, which costs more than everything else that the gateway does with
it. So publishes are read here and all other packets are left to paho. The broker has validated what it forwards;
what is malformed nevertheless raises ``ProtocolError`` and ends the connection.
"""

from __future__ import annotations

from typing import NamedTuple

from contracts.errors import TryLater
from contracts.topics import ACK_PROPERTY

PUBLISH = 0x30
QOS_1, QOS_2, RETAIN = 0x02, 0x04, 0x01
MAX_LENGTH_BYTES = 4


class ProtocolError(TryLater):
    """These bytes are not MQTT; nothing of them was taken, and a new connection brings them again."""


class Packet(NamedTuple):
    """One control packet in a buffer: first byte, and where its body begins and ends."""

    first: int
    start: int
    end: int


class Publish(NamedTuple):
    """``packet_id`` is 0 at QoS 0."""

    topic: str
    payload: bytes
    packet_id: int
    retained: bool
    asked: bool


def _string(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


ASKED = b"\x26" + _string(ACK_PROPERTY[0]) + _string(ACK_PROPERTY[1])
"""The user property as it stands on the wire. Searched for, not parsed: inside another property it asks in vain."""


def next_packet(data: bytes, at: int) -> Packet | None:
    """The complete packet that begins at ``at``; None when more bytes are needed. Raises ProtocolError."""
    size, shift, position = 0, 0, at + 1
    while position < len(data):
        byte = data[position]
        position += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            end = position + size
            return Packet(data[at], position, end) if end <= len(data) else None
        if shift == 7 * MAX_LENGTH_BYTES:
            raise ProtocolError("A packet's length has more than four bytes")
    return None


def read_publish(data: bytes, packet: Packet) -> Publish:
    """A PUBLISH at QoS 0 or 1. Raises ProtocolError."""
    first, start, end = packet
    try:
        topic_end = start + 2 + (data[start] << 8 | data[start + 1])
        packet_id, at = 0, topic_end
        if first & QOS_1:
            packet_id, at = data[at] << 8 | data[at + 1], at + 2
        length, shift = data[at], 7
        at += 1
        if length:
            length &= 0x7F
            while data[at - 1] & 0x80:
                length |= (data[at] & 0x7F) << shift
                shift += 7
                at += 1
    except IndexError:
        raise ProtocolError("A publish ends inside its header") from None
    body = at + length
    if body > end:
        raise ProtocolError("A publish ends inside its header")
    topic = data[start + 2 : topic_end].decode("utf-8", "replace")
    asked = length > 0 and data.find(ASKED, at, body) >= 0
    return Publish(topic, data[body:end], packet_id, bool(first & RETAIN), asked)
