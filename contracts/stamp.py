"""What the gateway adds to a packet on its way into Kafka: one record header of 18 bytes.

The value of the Kafka record stays the device's own bytes. Receive time, device key and tenant come from the
gateway and the registry, so every consumer (and every replay) sees the same ones. Big endian, fixed layout:
format byte, flags byte, receive time (Unix epoch milliseconds, int64), device key (int32), tenant id (int32).
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

from contracts.errors import Rejected

STAMP_HEADER = "fs"
DEAD_LETTER_HEADER = "dl"
STAMP_FORMAT = 1
FLAG_RECORDING = 1
"""The device replays a recording: far-past and lateness limits do not apply."""

STAMP = struct.Struct(">BBqii")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Receive time and the registered identity of one record."""

    received_ms: int
    device_key: int
    tenant_id: int
    flags: int = 0


def encode_stamp(stamp: Stamp) -> bytes:
    return STAMP.pack(STAMP_FORMAT, stamp.flags, stamp.received_ms, stamp.device_key, stamp.tenant_id)


def decode_stamp(data: bytes) -> Stamp:
    """Raises Rejected('bad_stamp')."""
    if len(data) != STAMP.size or data[0] != STAMP_FORMAT:
        raise Rejected("bad_stamp", f"{len(data)} bytes, format {data[:1].hex()}")
    _, flags, received_ms, device_key, tenant_id = STAMP.unpack(data)
    return Stamp(received_ms, device_key, tenant_id, flags)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why the gateway refused a message; its bytes are the Kafka record's value, this is its only header.

    ``device`` is the name in the MQTT topic ('' when the topic has none); ``tenant_id`` is 0 and
    ``boot_epoch``/``seq`` are 0 when unknown.
    """

    reason: str
    detail: str
    mqtt_topic: str
    device: str
    received_ms: int
    tenant_id: int = 0
    boot_epoch: int = 0
    seq: int = 0


def encode_dead_letter(letter: DeadLetter) -> bytes:
    return json.dumps(asdict(letter), separators=(",", ":")).encode()


def decode_dead_letter(data: bytes) -> DeadLetter:
    """Raises Rejected('bad_dead_letter')."""
    try:
        return DeadLetter(**json.loads(data))
    except (ValueError, RecursionError, TypeError) as error:
        raise Rejected("bad_dead_letter", str(error)) from error
