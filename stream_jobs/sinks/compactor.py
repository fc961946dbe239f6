"""Moves packet rows into blocks, one device and some ten minutes per transaction, beside running ingest.

A transaction deletes rows and inserts the blocks made of them; every reader sees one or the other, and a compactor
that dies leaves everything as it was. Ingest never touches rows that are stored, so nobody waits for anybody. A packet
that comes late for compacted minutes lies in a row like any other and becomes a further block of them.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from contracts.errors import TryLater
from contracts.locks import COMPACTOR_LOCK, OF_SCHEMA
from stream_jobs.arithmetic import Bools, Ints
from stream_jobs.compaction import SLOT_MS, Block, HotPackets, Run, compact, narrow
from stream_jobs.scales import catalogue_scales
from stream_jobs.sinks.connection import Connection, connect
from stream_jobs.sinks.pgbinary import COPY_HEADER, COPY_TRAILER, POSTGRES_EPOCH_MS, float8s, int2s, int4s, int8s

PACKETS_AT_ONCE: Final = 20_000
"""Packets of one transaction; some tens of megabytes of arrays."""

TRY_LOCK: Final = f"SELECT pg_try_advisory_lock(%s, {OF_SCHEMA})"
DEVICES: Final = "SELECT device_key FROM devices ORDER BY device_key"
BOUNDS: Final = """
SELECT floor(extract(epoch FROM first_at) * 1000)::bigint FROM packet_rows
WHERE device_key = %(device)s AND first_at < at_ms(%(before)s) AND received_at < at_ms(%(settled)s)
    AND (%(rested)s::bigint IS NULL OR stored_at < at_ms(%(rested)s))
ORDER BY first_at OFFSET %(at)s LIMIT 1"""
TAKE: Final = """
WITH gone AS (
    DELETE FROM packet_rows WHERE device_key = %(device)s AND first_at >= at_ms(%(from)s) AND first_at < at_ms(%(to)s)
        AND received_at < at_ms(%(settled)s) AND (%(rested)s::bigint IS NULL OR stored_at < at_ms(%(rested)s))
    RETURNING *
), told AS (
    INSERT INTO feed_horizons AS f (tenant_id, gone_to)
    SELECT tenant_id, max(stored_by) + 1 FROM gone WHERE stored_by IS NOT NULL GROUP BY 1 ORDER BY 1
    ON CONFLICT (tenant_id) DO UPDATE SET gone_to = greatest(f.gone_to, excluded.gone_to)
)
SELECT tenant_id, boot_epoch, seq, received_at, first_at, last_at, stored_at, base_ms, samples, lane,
    clock_trusted, sha256, signals, offsets_ms, vals, qualities FROM gone"""
"""Rows that leave, and in the same transaction the word to readers of the feed that they have left."""
RUN_COLUMNS: Final = (
    "device_key", "boot_epoch", "first_seq", "tenant_id", "packets", "received_to", "received_ms", "received_steps",
    "first_ms", "first_steps", "spans_ms", "stored_us", "samples", "lanes", "clock_trusted", "sha256s",
)  # fmt: skip
BLOCK_COLUMNS: Final = (
    "device_key", "signal", "exponent", "tenant_id", "first_at", "last_at", "received_to", "boot_epoch", "run_seq",
    "base_ms", "base_units", "base_seq", "n", "scale", "steps2", "steps4", "units2", "units4", "units8", "raw",
    "seq_steps", "pos_steps", "qualities",
)  # fmt: skip

log = logging.getLogger(__name__)
Field = bytes | None


@dataclass(slots=True)
class Compacted:
    """What a round did."""

    packets: int = 0
    samples: int = 0
    blocks: int = 0
    transactions: int = 0
    busy: bool = False
    """Another compactor is at work; this one did nothing."""


class Compactor:
    """One round over all devices; raises TryLater when the store does not answer."""

    def __init__(
        self, dsn: str, packets_at_once: int = PACKETS_AT_ONCE, on_devices: Callable[[int, int], None] | None = None
    ) -> None:
        self._dsn = dsn
        self._limit = packets_at_once
        self._tell = on_devices or (lambda done, of: None)

    def run(
        self, now_ms: int, delay_s: int, stop: Callable[[], bool] = lambda: False, rest_s: int | None = None
    ) -> Compacted:
        """Compact packets that begin in a ten minutes older than ``delay_s`` and came more than half of it ago: what a
        device sends together after a time offline is compacted together. ``rest_s``: and that were stored longer ago
        than that, however old they were by then, so that readers of the feed get to them before they leave it."""
        asked = {
            "before": (now_ms - delay_s * 1000) // SLOT_MS * SLOT_MS,
            "settled": now_ms - delay_s * 500,
            "rested": None if rest_s is None else now_ms - rest_s * 1000,
        }
        done = Compacted()
        try:
            with connect(self._dsn) as connection:
                _load_arrays(connection)
                found = connection.execute(TRY_LOCK, (COMPACTOR_LOCK,)).fetchone()
                if found is None or not found[0]:
                    done.busy = True
                    return done
                devices = [int(row[0]) for row in connection.execute(DEVICES).fetchall()]
                for at, device_key in enumerate(devices):
                    while not stop() and self._step(connection, {**asked, "device": device_key}, done):
                        pass
                    self._tell(at + 1, len(devices))
        except psycopg.OperationalError as error:
            raise TryLater(f"the store did not answer ({type(error).__name__}); rows and blocks are whole") from error
        return done

    def _step(self, connection: Connection, asked: dict[str, int | None], done: Compacted) -> bool:
        """One transaction; False when nothing is left."""
        device_key, before_ms = asked["device"], asked["before"]
        assert device_key is not None and before_ms is not None
        first = connection.execute(BOUNDS, {**asked, "at": 0}).fetchone()
        if first is None:
            return False
        last = connection.execute(BOUNDS, {**asked, "at": self._limit}).fetchone()
        end_ms = before_ms if last is None else _cut(int(first[0]), int(last[0]))
        with connection.transaction(), connection.cursor(binary=True) as cursor:
            rows = cursor.execute(TAKE, {**asked, "from": first[0], "to": end_ms}).fetchall()
            hot = read_hot(device_key, rows)
            runs, blocks = compact(hot, catalogue_scales())
            _same_counts(hot, runs, blocks)
            _copy(cursor, "packet_blocks", RUN_COLUMNS, map(run_fields, runs))
            _copy(cursor, "reading_blocks", BLOCK_COLUMNS, map(block_fields, blocks))
        done.packets += len(rows)
        done.samples += len(hot.event_ms)
        done.blocks += len(blocks)
        done.transactions += 1
        return last is not None


def _cut(first_ms: int, last_ms: int) -> int:
    """Where a transaction that cannot take everything ends: between two ten minutes where there is such a place."""
    slot = last_ms // SLOT_MS * SLOT_MS
    return slot if slot > first_ms else max(last_ms, first_ms + 1)


def _same_counts(hot: HotPackets, runs: Sequence[Run], blocks: Sequence[Block]) -> None:
    """Belt and braces: what leaves the rows must be in the blocks."""
    packets, samples = sum(int(run.present.sum()) for run in runs), sum(map(len, blocks))
    if packets != len(hot.seq) or samples != len(hot.event_ms):
        raise AssertionError(f"compaction would lose readings of device {hot.device_key}; nothing was changed")


def read_hot(device_key: int, rows: Sequence[tuple[Any, ...]]) -> HotPackets:
    """Rows of ``TAKE`` as columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 16
    tenant, epoch, seq, received, first, last, stored, base, believed, lane, trusted, sha = columns[:12]
    signals, offsets, values, given = columns[12:]
    counts = np.array([len(one) for one in signals], np.int64)
    good = [np.zeros(size, np.int64) for size in counts.tolist()]
    qualities = [fine if one is None else one for fine, one in zip(good, given, strict=True)]

    event_ms = np.repeat(np.array(base, np.int64), counts) + (np.concatenate(offsets) if len(rows) else counts)

    def ints(values: Sequence[Any]) -> Ints:
        return np.array(values, np.int64)

    def joined(arrays: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
        return np.concatenate(arrays).astype(kind) if len(arrays) else np.zeros(0, kind)

    return HotPackets(
        device_key, ints(tenant), ints(epoch), ints(seq), ints(received) // 1000, ints(first) // 1000,
        ints(last) // 1000, ints(stored), ints(believed), ints(lane), np.array(trusted, np.bool_),
        np.frombuffer(b"".join(sha), np.uint8).reshape(-1, 32), counts,
        event_ms, joined(signals, np.int64), joined(values, np.float64), joined(qualities, np.int64),
    )  # fmt: skip


def run_fields(run: Run) -> list[Field]:
    """A row of ``packet_blocks`` in PostgreSQL's binary form."""
    holes = None if run.present.all() else run.present
    return [
        _int4(run.device_key), _int8(run.boot_epoch), _int8(run.first_seq), _int4(run.tenant_id),
        _int4(int(run.present.sum())), _time(run.received_to_ms), _int8(run.received_ms),
        _array(run.received_steps, 4, holes), _int8(run.first_ms), _array(run.first_steps, 4, holes),
        _array(run.spans_ms, 8, holes), _array(run.stored_us, 8, holes), _array(run.samples, 4, holes),
        _array(run.lanes, 2, holes), _bools(run.clock_trusted, holes), run.sha256s,
    ]  # fmt: skip


def block_fields(block: Block) -> list[Field]:
    """A row of ``reading_blocks`` in PostgreSQL's binary form."""
    holes = None if block.known.all() else block.known
    small, plain = narrow(block.steps), block.raw is None
    kind = 8 if block.whole else 2 if narrow(block.units) else 4
    units = {size: _array(block.units, size, holes) if plain and kind == size else None for size in (2, 4, 8)}
    return [
        _int4(block.device_key), _int2(block.signal), _int2(block.exponent), _int4(block.tenant_id),
        _time(block.base_ms), _time(block.last_ms), _time(block.received_to_ms), _int8(block.boot_epoch),
        _int8(block.run_seq), _int8(block.base_ms), None if block.base_units is None else _int8(block.base_units),
        _int8(block.base_seq), _int4(len(block)), struct.pack(">d", 10.0 ** abs(block.exponent)),
        _array(block.steps, 2) if small else None, None if small else _array(block.steps, 4),
        units[2], units[4], units[8], None if block.raw is None else bytes(float8s(block.raw).data),
        _array(block.seq_steps, 4), _array(block.pos_steps, 4),
        None if block.qualities is None else _array(block.qualities, 2),
    ]  # fmt: skip


def _copy(cursor: psycopg.Cursor[Any], table: str, columns: Sequence[str], rows: Iterable[Sequence[Field]]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(sql.Identifier(table), names)
    with cursor.copy(statement) as copy:
        copy.write(COPY_HEADER)
        for row in rows:
            fields = (b"\xff\xff\xff\xff" if one is None else struct.pack(">i", len(one)) + one for one in row)
            copy.write(struct.pack(">h", len(row)) + b"".join(fields))
        copy.write(COPY_TRAILER)


_MAKERS = {2: int2s, 4: int4s, 8: int8s}
_OIDS = {1: 16, 2: 21, 4: 23, 8: 20}


def _array(values: Ints, size: int, present: Bools | None = None) -> bytes:
    if present is None:
        return _MAKERS[size](values).data
    return _with_nulls(values, f">i{size}", _OIDS[size], present)


def _bools(values: Bools, present: Bools | None) -> bytes:
    everything = np.ones(len(values), np.bool_) if present is None else present
    return _with_nulls(values.astype(np.int64), ">i1", _OIDS[1], everything)


def _with_nulls(values: Ints, kind: str, oid: int, present: Bools) -> bytes:
    size = np.dtype(kind).itemsize
    head = struct.pack(">iiiii", 1, int(not present.all()), oid, len(values), 1)
    length, null = struct.pack(">i", size), b"\xff\xff\xff\xff"
    items = np.asarray(values).astype(kind).tobytes()
    return head + b"".join(
        length + items[at * size : at * size + size] if there else null for at, there in enumerate(present.tolist())
    )


def _int2(value: int) -> bytes:
    return struct.pack(">h", value)


def _int4(value: int) -> bytes:
    return struct.pack(">i", value)


def _int8(value: int) -> bytes:
    return struct.pack(">q", value)


def _time(ms: int) -> bytes:
    return struct.pack(">q", (ms - POSTGRES_EPOCH_MS) * 1000)


def _load_arrays(connection: Connection) -> None:
    """Arrays of packet rows as NumPy arrays, times as Unix microseconds, on this connection only."""
    for oid, kind in ((1005, ">i2"), (1007, ">i4"), (1022, ">f8")):
        loader = type("_Loader", (_ArrayLoader,), {"item": np.dtype([("size", ">i4"), ("item", kind)])})
        connection.adapters.register_loader(oid, loader)
    connection.adapters.register_loader("timestamptz", _MicrosecondsLoader)


class _ArrayLoader(Loader):
    format = Format.BINARY
    item: np.dtype[Any]

    def load(self, data: Buffer) -> NDArray[Any]:
        if len(data) <= 12:
            return np.zeros(0, self.item["item"])
        return np.frombuffer(data, self.item, offset=20)["item"].copy()


class _MicrosecondsLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        (found,) = struct.unpack(">q", data)
        return int(found) + POSTGRES_EPOCH_MS * 1000
