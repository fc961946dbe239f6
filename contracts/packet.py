"""Packet format 1: one device's samples of a moment, as bytes.

A frame on the wire is Avro single-object encoding (two marker bytes ``C3 01``, the writer schema's
CRC-64-AVRO fingerprint, the body) followed by a CRC-32 (IEEE 802.3, little endian) over all that precedes it.
Header fields stand first in the body, so that a reader of the header alone can leave the arrays untouched.

Sample values are integers: ``value = (base + values[i]) * 10 ** exponent`` in the signal's unit; a sample's
event time is ``base_ms + offsets_ms[i]`` (Unix epoch, milliseconds, offsets may be negative). ``qualities``
is empty when every sample of the block is good. ``DoubleBlock`` carries what integers cannot (a sensor that
says NaN). A packet is encoded once; a resend is byte-identical.

A *parcel* is a frame of the same kind whose body is not samples but one opaque body of a named kind (crash records:
``contracts.edr.wire``). Its writer schema begins with the same ten header fields, so whoever reads headers only
(gateway, spool, archive) treats both alike.

This module refuses unknown writer fingerprints, wrong checksums and anything over ``MAX_FRAME_BYTES``.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from contracts.errors import Rejected
from contracts.names import check_device, check_name
from contracts.packet_model import FIRST_BAD_QUALITY, Block, DoubleBlock, DropReason, Gap, Header, Lane, Packet
from contracts.packet_model import Parcel as Parcel
from contracts.packet_model import Quality as Quality

__all__ = [
    "CRC_BYTES", "FIRST_BAD_QUALITY", "Block", "DoubleBlock", "DropReason", "Gap", "Header", "Lane", "Packet", "Parcel",
    "Quality",
]  # fmt: skip

MARKER = b"\xc3\x01"
PREFIX_BYTES = 10
CRC_BYTES = 4
MAX_FRAME_BYTES = 128 * 1024
"""Upper bound of one frame; the broker's ``max_packet_size`` leaves room for the MQTT header above it."""

HEADER_FIELDS = 10
_SCHEMA_FILES = ("packet_v1.avsc",)
_PARCEL_FILES = ("parcel_v1.avsc",)
MAX_PARCEL_BODY_BYTES = MAX_FRAME_BYTES - 1_024
"""Leaves room for the header (two names of 64 characters, eight numbers), fingerprint and checksum."""

_CRC = struct.Struct("<I")


class PacketError(Rejected):
    """These bytes are not a packet that we can read."""


def schema_text(file_name: str = _SCHEMA_FILES[-1]) -> str:
    """The writer schema as JSON text (what Spark's ``from_avro`` is given)."""
    return (Path(__file__).parent / file_name).read_text(encoding="utf-8")


@cache
def writer_schemas() -> dict[bytes, str]:
    """Of packets: fingerprint (8 bytes as they stand on the wire) to schema JSON, for every version ever published."""
    return _by_fingerprint(_SCHEMA_FILES)


@cache
def parcel_schemas() -> dict[bytes, str]:
    """The same of parcels."""
    return _by_fingerprint(_PARCEL_FILES)


def _by_fingerprint(files: tuple[str, ...]) -> dict[bytes, str]:
    return {
        bytes.fromhex(fingerprint(to_parsing_canonical_form(json.loads(text)), "CRC-64-AVRO")): text
        for text in map(schema_text, files)
    }


@cache
def _parsed(fingerprint_bytes: bytes) -> tuple[Any, Any]:
    """(whole schema, header-only schema) parsed for fastavro."""
    whole = json.loads((writer_schemas() | parcel_schemas())[fingerprint_bytes])
    header = {**whole, "name": "Header", "fields": whole["fields"][:HEADER_FIELDS]}
    return fastavro.parse_schema(whole), fastavro.parse_schema(header)


@cache
def current_fingerprint() -> bytes:
    """Fingerprint of the schema that this version writes."""
    return next(reversed(writer_schemas()))


def encode_packet(packet: Packet) -> bytes:
    """Encode once, before the commit that accepts it. Raises PacketError when the frame would be too large."""
    record = _fields(packet.header)
    for name in ("blocks", "doubles", "gaps"):
        record[name] = [_fields(item) for item in getattr(packet, name)]
    return _frame(current_fingerprint(), record)


def encode_parcel(parcel: Parcel) -> bytes:
    """A parcel's frame, encoded once like a packet's. Raises PacketError when it would be too large."""
    record = _fields(parcel.header) | {"kind": parcel.kind, "body": parcel.body}
    return _frame(next(reversed(parcel_schemas())), record)


def _frame(writer: bytes, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(MARKER + writer)
    fastavro.schemaless_writer(out, _parsed(writer)[0], record)
    frame = seal(out.getvalue())
    if len(frame) > MAX_FRAME_BYTES:
        raise PacketError("too_large", f"{len(frame)} bytes, the limit is {MAX_FRAME_BYTES}; split the samples")
    return frame


def _fields(item: Header | Block | DoubleBlock | Gap) -> dict[str, Any]:
    """Shallow ``asdict``: the deep copy of every array cost most of an encoding's time."""
    return {name: getattr(item, name) for name in item.__slots__}


def seal(prefix_and_body: bytes) -> bytes:
    """Append the CRC-32 that ends a frame."""
    return prefix_and_body + _CRC.pack(zlib.crc32(prefix_and_body))


def open_frame(frame: bytes) -> bytes:
    """Check size, marker, fingerprint and CRC; return the writer's fingerprint. Raises PacketError."""
    if len(frame) > MAX_FRAME_BYTES:
        raise PacketError("too_large", f"{len(frame)} bytes")
    if len(frame) < PREFIX_BYTES + CRC_BYTES or not frame.startswith(MARKER):
        raise PacketError("not_a_packet", f"{len(frame)} bytes without the single-object marker")
    if zlib.crc32(memoryview(frame)[:-CRC_BYTES]) != _CRC.unpack_from(frame, len(frame) - CRC_BYTES)[0]:
        raise PacketError("bad_crc")
    writer = frame[2:PREFIX_BYTES]
    if writer not in writer_schemas() and writer not in parcel_schemas():
        raise PacketError("unknown_fingerprint", writer.hex())
    return writer


def is_parcel(frame: bytes) -> bool:
    """Whether a frame says that it is a parcel; nothing is checked."""
    return frame[2:PREFIX_BYTES] in parcel_schemas()


def decode_header(frame: bytes) -> Header:
    """Read the header, leave the arrays alone. Raises PacketError with a reason code."""
    writer = open_frame(frame)
    return _header(_read(io.BytesIO(frame[PREFIX_BYTES:-CRC_BYTES]), _parsed(writer)[1], "bad_header"))


def decode_packet(frame: bytes) -> Packet:
    """Read everything and check that the arrays agree with each other and with the header."""
    if is_parcel(frame):
        raise PacketError("not_a_packet", "a parcel holds no samples")
    record = _read_whole(frame)
    packet = Packet(
        _header(record),
        tuple(Block(**_tuples(block)) for block in record["blocks"]),
        tuple(DoubleBlock(**_tuples(block)) for block in record["doubles"]),
        tuple(Gap(**gap) for gap in record["gaps"]),
    )
    check_arrays(packet)
    return packet


def decode_parcel(frame: bytes) -> Parcel:
    """Read a parcel. Raises PacketError; what its body means is not looked at."""
    open_frame(frame)
    if not is_parcel(frame):
        raise PacketError("not_a_parcel", "a packet of samples")
    record = _read_whole(frame)
    header = _header(record)
    if header.lane != Lane.PRIORITY or header.samples:
        raise PacketError("bad_header", "a parcel travels on the priority lane and counts no samples")
    return Parcel(header, record["kind"], record["body"])


def verify_packet(frame: bytes) -> Header:
    """All that decoding a packet or parcel checks, for who wants only the verdict: no objects for the arrays."""
    if is_parcel(frame):
        return decode_parcel(frame).header
    record = _read_whole(frame)
    header = _header(record)
    blocks = record["blocks"] + record["doubles"]
    _check_sizes(
        [(b["signal"], len(b["offsets_ms"]), len(b["values"]), len(b["qualities"])) for b in blocks], header.samples
    )
    return header


def check_arrays(packet: Packet) -> None:
    """Raise PacketError('bad_body') unless array lengths agree with each other and the header's count."""
    blocks: tuple[Block | DoubleBlock, ...] = (*packet.blocks, *packet.doubles)
    _check_sizes(
        [(b.signal, len(b.offsets_ms), len(b.values), len(b.qualities)) for b in blocks], packet.header.samples
    )


def _check_sizes(sizes: list[tuple[int, int, int, int]], samples: int) -> None:
    """Of each block: signal, offsets, values, qualities."""
    total = 0
    for signal, offsets, values, qualities in sizes:
        if values != offsets or qualities not in (0, offsets):
            raise PacketError("bad_body", f"signal {signal}: arrays differ in length")
        total += offsets
    if total != samples:
        raise PacketError("bad_body", f"header says {samples} samples, the body holds {total}")


def _read_whole(frame: bytes) -> dict[str, Any]:
    writer = open_frame(frame)
    body = io.BytesIO(frame[PREFIX_BYTES:-CRC_BYTES])
    record = _read(body, _parsed(writer)[0], "bad_body")
    if body.read(1):
        raise PacketError("bad_body", "bytes are left over after the body")
    return record


def _read(body: io.BytesIO, schema: Any, reason: str) -> dict[str, Any]:
    try:
        return fastavro.schemaless_reader(body, schema, None)  # type: ignore[return-value]
    except (EOFError, ValueError, IndexError, OverflowError, UnicodeDecodeError, TypeError, MemoryError) as error:
        raise PacketError(reason, type(error).__name__) from error


def _header(record: dict[str, Any]) -> Header:
    header = Header(*(record[name] for name in Header.__slots__))
    check_device(header.device)
    check_name("tenant", header.tenant)
    if header.boot_epoch < 1 or header.seq < 1 or header.samples < 0 or header.lane not in (0, 1, 2):
        raise PacketError("bad_header", "boot_epoch and seq start at 1, samples >= 0, lane is 0, 1 or 2")
    return header


def _tuples(block: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in block.items()}
