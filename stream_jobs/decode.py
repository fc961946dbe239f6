"""Arrow columns to flat sample arrays, pure. A record that is not a packet becomes a refusal with its reason.

Spark has decoded the body (``from_avro``, PERMISSIVE: what does not decode is a row of NULLs). Here the frame's
checksum, the header's bounds and the arrays' lengths are checked, and values become catalogue units. A value that
is not finite, or outside its signal's range, stays with a bad quality code; the packet never fails for it.
"""

from __future__ import annotations

import hashlib
from typing import cast

import numpy as np
import pyarrow.compute as pc

from contracts.limits import MAX_FUTURE_MS
from contracts.packet import FIRST_BAD_QUALITY, PacketError, Quality, open_frame
from contracts.stamp import FLAG_RECORDING, STAMP, STAMP_FORMAT
from stream_jobs.arithmetic import EXACT_LIMIT, Bools, Floats, Ints, rescale, to_double
from stream_jobs.blocks import LARGEST_NUMBER, Blocks, Doubles, body_fault, flatten_blocks, flatten_doubles
from stream_jobs.records import (
    FUTURE,
    TOO_LATE,
    Decoded,
    Gaps,
    Nested,
    Packets,
    Records,
    Refusal,
    Samples,
    Stamps,
)
from stream_jobs.scales import Scales

MAX_STAMP_MS = 2**47
_STAMP_TYPE = np.dtype(
    [("format", "u1"), ("flags", "u1"), ("received_ms", ">i8"), ("device", ">i4"), ("tenant", ">i4")]
)


def decode(records: Records, scales: Scales) -> Decoded:
    """Decode records of packet topics. Never raises for what a record holds."""
    stamps = read_stamps(records.stamp)
    refusals: dict[int, Refusal] = {int(row): Refusal(int(row), "bad_stamp") for row in np.flatnonzero(~stamps.valid)}
    digests = _check_frames(records, refusals)
    alive = np.array([row for row in range(len(records)) if row not in refusals], np.int64)
    alive = _check_bodies(records, alive, scales, refusals)
    body = _take(records.packet, alive)
    packets = _packets(records, stamps, body, alive)
    return Decoded(
        records, stamps, packets, _samples(packets, body, scales), _gaps(body), tuple(refusals.values()),
        tuple(body.field("device").to_pylist()), tuple(body.field("tenant").to_pylist()),
        np.frombuffer(b"".join(digests[row] for row in alive.tolist()), np.uint8).reshape(-1, 32),
    )  # fmt: skip


def read_stamps(column: Nested) -> Stamps:
    """The gateway's headers; a missing or strange one is not valid."""
    blank = bytes(STAMP.size)
    raw = [one if one is not None and len(one) == STAMP.size else blank for one in column.to_pylist()]
    table = np.frombuffer(b"".join(raw), _STAMP_TYPE)
    received = table["received_ms"].astype(np.int64)
    valid = (table["format"] == STAMP_FORMAT) & (received > 0) & (received < MAX_STAMP_MS)
    return Stamps(
        valid,
        np.where(valid, received, 0),
        np.where(valid, table["device"], 0).astype(np.int64),
        np.where(valid, table["tenant"], 0).astype(np.int64),
        valid & ((table["flags"] & FLAG_RECORDING) != 0),
    )


def _check_frames(records: Records, refusals: dict[int, Refusal]) -> list[bytes]:
    """SHA-256 of every frame; refuse what is not a packet by its own checksum."""
    digests = []
    for row, frame in enumerate(records.value.to_pylist()):
        digests.append(hashlib.sha256(frame or b"").digest())
        try:
            open_frame(frame or b"")
        except PacketError as error:
            refusals.setdefault(row, Refusal(row, error.reason, {"detail": error.detail}))
    return digests


def _check_bodies(records: Records, alive: Ints, scales: Scales, refusals: dict[int, Refusal]) -> Ints:
    """Refuse rows of NULLs, headers out of bounds and bodies whose arrays disagree; return the rows that stay."""
    nulls = pc.or_(pc.is_null(records.packet), pc.is_null(records.packet.field("device")))
    missing = nulls.to_numpy(zero_copy_only=False)[alive]
    for row in alive[missing].tolist():
        refusals[row] = Refusal(row, "undecodable")
    alive = cast(Ints, alive[~missing])
    body = _take(records.packet, alive)
    epoch, seq, claimed = (_ints(body, name) for name in ("boot_epoch", "seq", "samples"))
    header_fault = _header_fault(body)
    faults = body_fault(body, claimed, scales)
    for index in np.flatnonzero(header_fault | (faults.code > 0)).tolist():
        reason, detail = ("bad_header", {}) if header_fault[index] else faults.describe(index)
        known = not header_fault[index]
        refusals[int(alive[index])] = Refusal(
            int(alive[index]), reason, detail, int(claimed[index]) if known else 0,
            int(epoch[index]) if known else None, int(seq[index]) if known else None,
        )  # fmt: skip
    return cast(Ints, alive[~header_fault & (faults.code == 0)])


def _header_fault(body: Nested) -> Bools:
    epoch, seq, lane, base = (_ints(body, name) for name in ("boot_epoch", "seq", "lane", "base_ms"))
    fault = (epoch < 1) | (epoch > LARGEST_NUMBER) | (seq < 1) | (seq > LARGEST_NUMBER)
    fault |= (lane < 0) | (lane > 2) | (_ints(body, "samples") < 0)
    return fault | (base < -EXACT_LIMIT) | (base > EXACT_LIMIT)


def _packets(records: Records, stamps: Stamps, body: Nested, rows: Ints) -> Packets:
    epoch, nonce, seq, lane, base = (_ints(body, name) for name in ("boot_epoch", "nonce", "seq", "lane", "base_ms"))
    trusted = body.field("clock_trusted").to_numpy(zero_copy_only=False).astype(np.bool_)
    return Packets(
        rows, records.source[rows], records.offset[rows], stamps.received_ms[rows], stamps.device_key[rows],
        stamps.tenant_id[rows], stamps.recording[rows], epoch, nonce, seq, lane, base, trusted,
    )  # fmt: skip


def _samples(packets: Packets, body: Nested, scales: Scales) -> Samples:
    """All samples in packet order, integer blocks before blocks of doubles."""
    blocks, doubles = flatten_blocks(body), flatten_doubles(body)
    parts = [_from_blocks(blocks, scales), _from_doubles(doubles, scales)]
    packet = np.concatenate([blocks.packet, doubles.packet])
    offset = np.concatenate([blocks.offset_ms, doubles.offset_ms])
    signal, units, value, quality = (np.concatenate([part[n] for part in parts]) for n in range(4))
    if len(doubles.packet):
        order = np.argsort(packet, kind="stable")
        packet, offset, signal, units, value, quality = (
            one[order] for one in (packet, offset, signal, units, value, quality)
        )
    first = np.searchsorted(packet, np.arange(len(packets)))
    event = packets.base_ms[packet] + offset
    return Samples(
        packet, np.arange(len(packet)) - first[packet], signal.astype(np.int64), event, units.astype(np.int64),
        value.astype(np.float64), quality.astype(np.int64), _belief(packets, packet, event, scales.lateness_ms[signal]),
    )  # fmt: skip


def _belief(packets: Packets, packet: Ints, event_ms: Ints, lateness_ms: Ints) -> Ints:
    """Nothing before 1970 is believed; a recording may be as old as it likes after that."""
    received = packets.received_ms[packet]
    too_late = (event_ms < received - lateness_ms) & ~packets.recording[packet]
    belief = np.where(too_late | (event_ms < 0), TOO_LATE, 0)
    return np.where(event_ms > received + MAX_FUTURE_MS, FUTURE, belief).astype(np.int64)


def _from_blocks(blocks: Blocks, scales: Scales) -> tuple[Ints, Ints, Floats, Ints]:
    """(signal position, units, value, quality) of scaled integers."""
    at, _ = scales.find(blocks.signal)
    wild = _beyond(blocks.base) | _beyond(blocks.value)
    raw = np.where(wild, 0, blocks.base) + np.where(wild, 0, blocks.value)
    units, too_large = rescale(raw, blocks.exponent - scales.exponents[at])
    wild |= too_large
    value = to_double(units, scales.exponents[at])
    if wild.any():
        guess = (blocks.base[wild].astype(np.float64) + blocks.value[wild]) * 10.0 ** blocks.exponent[wild]
        value[wild] = guess
    return at, units, value, _judge(blocks.quality, wild, units, at, scales)


def _from_doubles(doubles: Doubles, scales: Scales) -> tuple[Ints, Ints, Floats, Ints]:
    """(signal position, units, value, quality) of doubles, rounded to the signal's resolution."""
    at, _ = scales.find(doubles.signal)
    exponent = scales.exponents[at]
    finite = np.isfinite(doubles.value)
    power = 10.0 ** np.abs(exponent)
    with np.errstate(over="ignore"):
        safe = np.where(finite, doubles.value, 0.0)
        scaled = np.where(exponent < 0, safe * power, safe / power)
    wild = finite & (np.abs(scaled) > EXACT_LIMIT)
    units = np.rint(np.where(wild, 0.0, scaled)).astype(np.int64)
    value = np.where(wild, doubles.value, to_double(units, exponent))
    quality = _judge(doubles.quality, wild, units, at, scales)
    unknown = ~finite & (doubles.quality < FIRST_BAD_QUALITY)
    return at, units, np.where(finite, value, np.nan), np.where(unknown, int(Quality.NOT_FINITE), quality)


def _judge(given: Ints, wild: Bools, units: Ints, at: Ints, scales: Scales) -> Ints:
    """The device's own verdict when it is bad, else OUT_OF_RANGE where the value is."""
    outside = wild | (units < scales.lowest[at]) | (units > scales.highest[at])
    return np.where(outside & (given < FIRST_BAD_QUALITY), int(Quality.OUT_OF_RANGE), given)


def _gaps(body: Nested) -> Gaps:
    lists = body.field("gaps")
    rows = lists.flatten()
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    names = ("first_seq", "last_seq", "reason", "retention", "packets", "samples")
    return Gaps(np.repeat(np.arange(len(lists)), counts), *(_ints(rows, name) for name in names))


def _beyond(values: Ints) -> Bools:
    return (values > EXACT_LIMIT) | (values < -EXACT_LIMIT)


def _ints(struct: Nested, name: str) -> Ints:
    return cast(Ints, struct.field(name).to_numpy(zero_copy_only=False).astype(np.int64))


def _take(struct: Nested, rows: Ints) -> Nested:
    return struct if len(rows) == len(struct) else struct.take(rows)
