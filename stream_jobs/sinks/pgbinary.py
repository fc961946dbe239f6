"""PostgreSQL's binary wire layouts straight from NumPy: array parameters and COPY rows of packets.

Parameters: one array per column, bound to ``unnest``. COPY: packets with equally many samples have rows of one
layout, so each such group is one structured array.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

from stream_jobs.arithmetic import Bools, Floats, Ints

POSTGRES_EPOCH_MS = 946_684_800_000
"""2000-01-01 UTC, where PostgreSQL's timestamps start, in Unix milliseconds."""

COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
COPY_TRAILER = struct.pack(">h", -1)
COPY_COLUMNS = (
    "received_at", "first_at", "last_at", "boot_epoch", "seq", "base_ms", "device_key", "tenant_id", "samples",
    "lane", "clock_trusted", "sha256", "signals", "offsets_ms", "vals", "qualities",
)  # fmt: skip
"""Columns in the order in which ``copy_rows`` writes them."""

_FIXED = (("received_at", ">i8"), ("first_at", ">i8"), ("last_at", ">i8"), ("boot_epoch", ">i8"), ("seq", ">i8"),
          ("base_ms", ">i8"), ("device_key", ">i4"), ("tenant_id", ">i4"), ("samples", ">i4"), ("lane", ">i2"),
          ("clock_trusted", "?"), ("sha256", ("u1", 32)))  # fmt: skip
_INT2, _INT4, _INT8, _FLOAT8, _TEXT, _TIMESTAMPTZ = 21, 23, 20, 701, 25, 1184
_ARRAYS = {
    "signals": (">i2", _INT2),
    "offsets_ms": (">i4", _INT4),
    "vals": (">f8", _FLOAT8),
    "qualities": (">i2", _INT2),
}
_ROWS_AT_ONCE = 4_096


class ArrayParameter:
    """A one-dimensional array in PostgreSQL's binary form; the subclass says of which type."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Int2s(ArrayParameter):
    """``smallint[]``"""


class Int4s(ArrayParameter):
    """``integer[]``"""


class Int8s(ArrayParameter):
    """``bigint[]``"""


class Float8s(ArrayParameter):
    """``double precision[]``"""


class Times(ArrayParameter):
    """``timestamptz[]``"""


class Texts(ArrayParameter):
    """``text[]``"""


_ARRAY_OIDS: dict[type[ArrayParameter], int] = {
    Int2s: 1005, Int4s: 1007, Int8s: 1016, Float8s: 1022, Times: 1185, Texts: 1009,
}  # fmt: skip


def int2s(values: Ints) -> Int2s:
    return Int2s(_array(values, ">i2", _INT2))


def int4s(values: Ints) -> Int4s:
    return Int4s(_array(values, ">i4", _INT4))


def int8s(values: Ints) -> Int8s:
    return Int8s(_array(values, ">i8", _INT8))


def float8s(values: Floats) -> Float8s:
    return Float8s(_array(values, ">f8", _FLOAT8))


def times(values_ms: Ints) -> Times:
    """Unix milliseconds as ``timestamptz``."""
    return Times(_array(_microseconds(values_ms), ">i8", _TIMESTAMPTZ))


def texts(values: list[str]) -> Texts:
    parts = [one.encode() for one in values]
    body = b"".join(struct.pack(">i", len(part)) + part for part in parts)
    return Texts((_array_header(_TEXT, len(parts)) if parts else _empty_array(_TEXT)) + body)


def register(connection: psycopg.Connection[Any]) -> None:
    """Teach a connection to send these arrays."""
    for kind, oid in _ARRAY_OIDS.items():
        dumper = type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": oid})
        connection.adapters.register_dumper(kind, dumper)


@dataclass(frozen=True, slots=True)
class PacketRows:
    """Rows of ``packet_rows``: fixed columns by name, and samples that lie together per packet."""

    fixed: dict[str, NDArray[Any]]
    counts: Ints
    signals: Ints
    offsets_ms: Ints
    vals: Floats
    qualities: Ints


def copy_rows(rows: PacketRows) -> Iterator[bytes]:
    """The body of a binary COPY (without header and trailer), in pieces of bounded size."""
    ends = np.cumsum(rows.counts)
    starts = ends - rows.counts
    judged = _judged(starts, ends, rows.qualities)
    order = np.lexsort((judged, rows.counts))
    keys = rows.counts[order] * 2 + judged[order]
    for group in np.split(order, np.flatnonzero(np.diff(keys)) + 1):
        for at in range(0, len(group), _ROWS_AT_ONCE):
            piece = group[at : at + _ROWS_AT_ONCE]
            yield _piece(rows, piece, starts, bool(judged[piece[0]]))


def fixed_columns(received_ms: Ints, first_ms: Ints, last_ms: Ints) -> dict[str, NDArray[Any]]:
    """The three times of a packet row as PostgreSQL counts them."""
    return {
        "received_at": _microseconds(received_ms),
        "first_at": _microseconds(first_ms),
        "last_at": _microseconds(last_ms),
    }


def _piece(rows: PacketRows, index: Ints, starts: Ints, judged: bool) -> bytes:
    size = int(rows.counts[index[0]])
    table = np.zeros(len(index), _row_type(size, judged))
    table["fields"] = len(COPY_COLUMNS)
    for name, _ in _FIXED:
        table[name + "_len"] = table.dtype[name].itemsize
        table[name] = rows.fixed[name][index]
    at = starts[index][:, None] + np.arange(size)
    for name, (kind, oid) in _ARRAYS.items():
        if name == "qualities" and not judged:
            table["qualities_len"] = -1
            continue
        _fill_array(table, name, oid, np.dtype(kind).itemsize, getattr(rows, name)[at])
    return table.tobytes()


def _fill_array(table: NDArray[Any], name: str, oid: int, item_bytes: int, values: NDArray[Any]) -> None:
    size = values.shape[1]
    table[name + "_len"] = 20 + size * (4 + item_bytes) if size else 12
    header = (1, 0, oid, size, 1) if size else (0, 0, oid)
    table[name + "_head"] = np.array(header, ">i4")
    if size:
        table[name]["size"] = item_bytes
        table[name]["item"] = values


def _row_type(size: int, judged: bool) -> np.dtype[np.void]:
    fields: list[tuple[Any, ...]] = [("fields", ">i2")]
    for name, kind in _FIXED:
        fields += [(name + "_len", ">i4"), (name, *kind) if isinstance(kind, tuple) else (name, kind)]
    for name, (kind, _) in _ARRAYS.items():
        fields.append((name + "_len", ">i4"))
        if name == "qualities" and not judged:
            continue
        fields.append((name + "_head", ">i4", (5 if size else 3,)))
        if size:
            fields.append((name, [("size", ">i4"), ("item", kind)], (size,)))
    return np.dtype(fields)


def _array(values: NDArray[Any], kind: str, oid: int) -> bytes:
    if not len(values):
        return _empty_array(oid)
    table = np.empty(len(values), [("size", ">i4"), ("item", kind)])
    table["size"] = np.dtype(kind).itemsize
    table["item"] = values
    return _array_header(oid, len(values)) + table.tobytes()


def _array_header(oid: int, size: int) -> bytes:
    return struct.pack(">iiiii", 1, 0, oid, size, 1)


def _empty_array(oid: int) -> bytes:
    return struct.pack(">iii", 0, 0, oid)


def _microseconds(values_ms: Ints) -> Ints:
    return (values_ms - POSTGRES_EPOCH_MS) * 1000


def _judged(starts: Ints, ends: Ints, qualities: Ints) -> Bools:
    """Packets with at least one sample that is not good."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(qualities != 0)])
    return np.asarray(sums[ends] > sums[starts])


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: ArrayParameter) -> Buffer:
        return obj.data
