"""Arrays as PostgreSQL sends them, and blocks of readings as columns; standard library only, no loop per value."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from psycopg import AsyncCursor
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

_SWAP = sys.byteorder == "little"
_HEADER_BYTES = 20
_SMALLINTS, _INTEGERS, _BIGINTS, _DOUBLES = 1005, 1007, 1016, 1022

Number = int | float | None


@dataclass(frozen=True, slots=True)
class Piece:
    """Readings of one device and boot epoch, ordered by (time, sequence number, position); lists run in parallel.

    ``qualities`` None: every one is good. A value None: the sensor sent something that is no number.
    """

    device_key: int
    boot_epoch: int
    ms: Sequence[int]
    values: Sequence[float | None]
    qualities: Sequence[int] | None
    seqs: Sequence[int]
    positions: Sequence[int]


def read_piece(row: dict[str, Any]) -> Piece:
    """A row of the question in ``readings``: a compacted block, or a device's packet rows side by side."""
    qualities = row["qualities"]
    if row["ms"] is not None:
        values = [None if one != one else one for one in row["vals"]]
        good = qualities is None or not any(qualities)
        return Piece(
            row["device_key"], row["boot_epoch"], row["ms"], values, None if good else qualities, row["seqs"],
            row["positions"],
        )  # fmt: skip
    steps = row["steps2"] if row["steps4"] is None else row["steps4"]
    return Piece(
        row["device_key"], row["boot_epoch"], _running(row["base_ms"], steps), _values(row), qualities,
        _running(row["base_seq"], row["seq_steps"]), list(accumulate(row["pos_steps"])),
    )  # fmt: skip


def _values(row: dict[str, Any]) -> list[float | None]:
    if row["raw"] is not None:
        return [None if one != one else one for one in row["raw"]]
    scale, divide = row["scale"], row["exponent"] < 0
    steps = row["units2"] if row["units4"] is None else row["units4"]
    if row["units8"] is not None:
        units: list[int | None] = list(row["units8"])
    elif None in steps:
        last, units = row["base_units"] or 0, []
        for step in steps:
            last += step or 0
            units.append(None if step is None else last)
    else:
        whole = _running(row["base_units"], steps)
        return [one / scale for one in whole] if divide else [one * scale for one in whole]
    return [None if one is None else one / scale if divide else one * scale for one in units]


def _running(base: int, steps: Sequence[int]) -> list[int]:
    """The first step is 0: it belongs to the base."""
    return list(accumulate(steps, initial=base))[1:]


def load_arrays(cursor: AsyncCursor[Any]) -> None:
    """Have a binary cursor give arrays that hold no NULL as they lie in the message."""
    for oid, loader in ((_SMALLINTS, _Smallints), (_INTEGERS, _Integers), (_BIGINTS, _Bigints), (_DOUBLES, _Doubles)):
        cursor.adapters.register_loader(oid, loader)


class _Arrays(Loader):
    format = Format.BINARY
    code: str

    def load(self, data: Buffer) -> Sequence[Any]:
        body = bytes(data)
        if len(body) <= _HEADER_BYTES:
            return []
        if struct.unpack_from(">i", body, 4)[0]:
            return self._with_nulls(body)
        return self._plain(body[_HEADER_BYTES:])

    def _plain(self, body: bytes) -> Sequence[Any]:
        return [value for _, value in struct.iter_unpack(f">i{self.code}", body)]

    def _with_nulls(self, body: bytes) -> list[Any]:
        found: list[Any] = []
        at = _HEADER_BYTES
        while at < len(body):
            (size,) = struct.unpack_from(">i", body, at)
            at += 4
            if size < 0:
                found.append(None)
                continue
            found.append(struct.unpack_from(f">{self.code}", body, at)[0])
            at += size
        return found


class _Smallints(_Arrays):
    code = "h"

    def _plain(self, body: bytes) -> Sequence[Any]:
        return _every(array("h", body), 3)  # a length of two shorts, then the value


class _Integers(_Arrays):
    code = "i"

    def _plain(self, body: bytes) -> Sequence[Any]:
        return _every(array("i", body), 2)


class _Bigints(_Arrays):
    code = "q"


class _Doubles(_Arrays):
    code = "d"


def _every(words: array[int], size: int) -> array[int]:
    values = words[size - 1 :: size]
    if _SWAP:
        values.byteswap()
    return values
