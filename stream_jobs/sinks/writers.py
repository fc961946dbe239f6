"""The single writes of the ingest transaction: columns in, one statement each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg
from psycopg.types.json import Jsonb

from contracts.tables import PACKET_TABLE
from stream_jobs.accounts import Account, RefusedRow
from stream_jobs.arithmetic import Ints
from stream_jobs.heart import Epochs, SeenChange
from stream_jobs.merge import Edge, Latest, Windows
from stream_jobs.records import Gaps, Packets, Records, Refusal, Samples, Source, Stamps
from stream_jobs.scales import Scales
from stream_jobs.sinks import statements as sql
from stream_jobs.sinks.pgbinary import (
    COPY_COLUMNS,
    COPY_HEADER,
    COPY_TRAILER,
    PacketRows,
    copy_rows,
    fixed_columns,
    float8s,
    int2s,
    int4s,
    int8s,
    texts,
    times,
)

Cursor = psycopg.Cursor[tuple[Any, ...]]
_COPY = f"COPY {PACKET_TABLE} ({', '.join(COPY_COLUMNS)}) FROM STDIN (FORMAT BINARY)"
HOUR_MS = 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(ms: int) -> datetime:
    """Unix milliseconds as the store's time, exactly."""
    return _EPOCH + timedelta(milliseconds=ms)


def write_epochs(cursor: Cursor, epochs: Epochs, change: SeenChange) -> None:
    cursor.execute(
        sql.UPDATE_EPOCHS,
        (
            int4s(epochs.device_key), int8s(epochs.boot_epoch), texts(change.ranges), int8s(change.packets),
            int8s(change.samples), int8s(change.duplicates),
        ),
    )  # fmt: skip


def write_packets(
    cursor: Cursor, packets: Packets, samples: Samples, believed: Ints, sha256: np.ndarray, scales: Scales
) -> None:
    """COPY packet rows. ``samples`` are believed ones; transient signals are left out of the arrays."""
    stored = ~scales.transient[samples.signal]
    samples = samples if stored.all() else samples.where(stored)
    counts = np.bincount(samples.packet, minlength=len(packets)).astype(np.int64)
    first, last = _extent(packets, samples, counts)
    fixed = fixed_columns(packets.received_ms, first, last) | {
        "boot_epoch": packets.boot_epoch, "seq": packets.seq, "base_ms": packets.base_ms,
        "device_key": packets.device_key, "tenant_id": packets.tenant_id, "samples": believed, "lane": packets.lane,
        "clock_trusted": packets.clock_trusted, "sha256": sha256,
    }  # fmt: skip
    offsets = samples.event_ms - packets.base_ms[samples.packet]
    numbers = scales.numbers[samples.signal]
    rows = PacketRows(fixed, counts, numbers, offsets, samples.value, samples.quality)
    with cursor.copy(_COPY) as copy:
        copy.write(COPY_HEADER)
        for piece in copy_rows(rows):
            copy.write(piece)
        copy.write(COPY_TRAILER)


def write_latest(cursor: Cursor, latest: Latest) -> None:
    cursor.execute(
        sql.LATEST,
        (
            int4s(latest.device_key), int2s(latest.signal), int4s(latest.tenant_id), int8s(latest.measured_ms),
            int8s(latest.boot_epoch), int8s(latest.seq), int4s(latest.pos), float8s(latest.value),
            int2s(latest.quality), times(latest.received_ms),
        ),
    )  # fmt: skip


def write_windows(cursor: Cursor, windows: Windows) -> None:
    parameters = [
        int4s(windows.device_key), int2s(windows.signal), int4s(windows.width_s), times(windows.start_s * 1000),
        int4s(windows.tenant_id), int8s(windows.n), int8s(windows.total.high), int8s(windows.total.low),
        int8s(windows.squares.high), int8s(windows.squares.low), int8s(windows.lowest), int8s(windows.highest),
        *_edge(windows.first), *_edge(windows.last),
    ]  # fmt: skip
    if not windows.late:
        cursor.execute(sql.WINDOWS, parameters)
        return
    late = ["{}"] * len(windows)
    for index, minutes in windows.late.items():
        late[index] = "{" + ",".join(map(str, minutes)) + "}"
    cursor.execute(sql.WINDOWS_LATE, [*parameters, texts(late)])


def write_too_late(cursor: Cursor, packets: Packets, late: Samples, scales: Scales) -> None:
    """Add samples that came too late to the report, by device, signal and receive hour."""
    hour = packets.received_ms[late.packet] // HOUR_MS
    keys = np.stack([packets.device_key[late.packet], scales.numbers[late.signal], hour])
    groups, first, owner = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(owner.ravel(), kind="stable")
    starts = np.searchsorted(owner.ravel()[order], np.arange(len(first)))
    event = late.event_ms[order]
    cursor.execute(
        sql.TOO_LATE,
        (
            int4s(groups[0]), int2s(groups[1]), times(groups[2] * HOUR_MS),
            int4s(packets.tenant_id[late.packet[first]]), int8s(np.bincount(owner.ravel()).astype(np.int64)),
            int8s(np.minimum.reduceat(event, starts)), int8s(np.maximum.reduceat(event, starts)),
        ),
    )  # fmt: skip


def write_gaps(cursor: Cursor, packets: Packets, gaps: Gaps) -> None:
    owner = gaps.packet
    cursor.execute(
        sql.GAPS,
        (
            int4s(packets.device_key[owner]), int8s(packets.boot_epoch[owner]), int8s(gaps.first_seq),
            int8s(gaps.last_seq), int4s(packets.tenant_id[owner]), int2s(gaps.reason), int2s(gaps.retention),
            int8s(gaps.packets), int8s(gaps.samples), int8s(packets.seq[owner]), times(packets.received_ms[owner]),
        ),
    )  # fmt: skip


def write_quarantine(cursor: Cursor, records: Records, stamps: Stamps | None, refusals: Iterable[Refusal]) -> None:
    """Records that are set aside, with their bytes and what is known of them."""
    cursor.executemany(sql.QUARANTINE, [_quarantine_row(records, stamps, refusal) for refusal in refusals])


def write_refused(cursor: Cursor, records: Records, rows: Sequence[RefusedRow]) -> None:
    cursor.executemany(
        sql.REFUSED,
        [
            (
                *_place(records, row.row), row.tenant_id, row.device, row.boot_epoch, row.seq, row.reason, row.detail,
                row.mqtt_topic, at(row.received_ms), _bytes(records, row.row),
            )
            for row in rows
        ],
    )  # fmt: skip


def write_accounts(cursor: Cursor, accounts: Sequence[Account]) -> None:
    cursor.executemany(
        sql.ACCOUNT,
        [
            (
                one.device_key, one.status.boot_epoch, one.status.nonce, one.tenant_id, one.status.next_seq,
                one.status.at_ms, at(one.received_ms), Jsonb(one.as_json()),
            )
            for one in accounts
        ],
    )  # fmt: skip


def _edge(edge: Edge) -> tuple[Any, ...]:
    return int8s(edge.units), int8s(edge.ms), int8s(edge.boot_epoch), int8s(edge.seq), int4s(edge.pos)


def _extent(packets: Packets, samples: Samples, counts: Ints) -> tuple[Ints, Ints]:
    """First and last event time per packet; a packet without readings stands at its receive time."""
    first, last = packets.received_ms.copy(), packets.received_ms.copy()
    filled = counts > 0
    if filled.any():
        starts = (np.cumsum(counts) - counts)[filled]
        first[filled] = np.minimum.reduceat(samples.event_ms, starts)
        last[filled] = np.maximum.reduceat(samples.event_ms, starts)
    return first, last


def _quarantine_row(records: Records, stamps: Stamps | None, refusal: Refusal) -> tuple[Any, ...]:
    source, row = _source(records, refusal.row), refusal.row
    stamped = stamps is not None and bool(stamps.valid[row])
    known = (
        (int(stamps.tenant_id[row]), int(stamps.device_key[row]), at(int(stamps.received_ms[row])))
        if stamps is not None and stamped
        else (None, None, None)
    )
    return (
        *_place(records, row), source.topic, known[0], known[1], refusal.boot_epoch, refusal.seq, refusal.reason,
        refusal.samples, Jsonb(refusal.detail), known[2], _bytes(records, row),
    )  # fmt: skip


def _place(records: Records, row: int) -> tuple[Any, ...]:
    source = _source(records, row)
    return source.topic_id, source.partition, int(records.offset[row])


def _source(records: Records, row: int) -> Source:
    return records.sources[int(records.source[row])]


def _bytes(records: Records, row: int) -> bytes:
    value = records.value[row].as_py()
    return b"" if value is None else bytes(value)
