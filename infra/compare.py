"""Two versions of the derived tables, row by row: both sides read in key order and merged, so memory is bounded.

Not compared, because they are no function of the log: when a row was stored, what the closer said of a window, and
sealed bytes of crash records, which the archive leaves out (their size and hash are compared).
Roll-ups that the closer still owes something are left out: their minutes are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import sql

from contracts.limits import ROLLUP_WIDTHS_S, WINDOW_WIDTHS_S
from contracts.packet import DropReason
from infra.rollups import KEY, SETTLED, names
from infra.versions import Connection, columns

FETCH_ROWS = 20_000
Key = tuple[Any, ...]
Row = tuple[Key, str]

CLOSING: Final = ("state", "published_revision", "publications")
"""Columns of a window that the closer writes; a swap settles them."""


READINGS: Final = (
    "string_agg(concat_ws(' ', signal, measured_at::text, coalesce(value::text, '-'), quality::text), ', '"
    " ORDER BY signal, measured_at, value, quality)"
)
"""A packet's readings as one text, whether they lie in rows or in compacted blocks."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One table or view: what identifies a row, what is left out of it, and which rows are asked for.

    ``wanted`` may use {since} and {oldest}: times before which rows are left out. ``grouped``: one text per key.
    ``among``: a question to the live tables for the only keys that are compared, in their order.
    """

    name: str
    table: str
    key: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    grouped: str | None = None
    wanted: str = "true"
    wanted_since: str = "true"
    among: str | None = None


TABLES: Final = (
    Compared(
        "windows", "window_aggregates", KEY, CLOSING,
        wanted=f"width_s IN ({', '.join(map(str, WINDOW_WIDTHS_S))})",
        wanted_since="starts_at >= {since} + interval '10 min'",
    ),
    Compared(
        "roll_ups", "window_aggregates", KEY, CLOSING,
        wanted=f"width_s IN ({', '.join(map(str, ROLLUP_WIDTHS_S))})",
        wanted_since="starts_at >= {since} + interval '10 min'", among=SETTLED,
    ),
    Compared(
        "packets", "packets", ("device", "boot_epoch", "seq"), ("stored_at",),
        wanted="received_at >= {oldest}", wanted_since="received_at >= {since}",
    ),
    Compared(
        "readings", "readings", ("device", "boot_epoch", "seq"), grouped=READINGS,
        wanted="received_at >= {oldest}", wanted_since="received_at >= {since}",
    ),
    Compared(
        "ledger", "seen_ranges", ("device_key", "boot_epoch"), wanted_since="true",
    ),
    Compared("latest", "latest_values", ("device_key", "signal"), wanted_since="received_at >= {since}"),
    Compared(
        "quarantine", "quarantined", ("topic_id", "kafka_partition", "kafka_offset"), ("quarantined_at", "sealed"),
        wanted_since="received_at >= {since}",
    ),
    Compared(
        "dead_letters", "refused", ("topic_id", "kafka_partition", "kafka_offset"), ("sealed",),
        wanted_since="received_at >= {since}",
    ),
    Compared("dropped", "agent_gaps", ("device_key", "boot_epoch", "first_seq", "last_seq"),
             wanted=f"reason <> {int(DropReason.FORGOTTEN)}", wanted_since="received_at >= {since}"),
    Compared("accounts", "agent_status", ("device_key", "boot_epoch"), wanted_since="received_at >= {since}"),
)  # fmt: skip
"""A window that begins ten minutes (``contracts.limits.MAX_FUTURE_MS``) after ``since`` holds nothing older."""

SINCE_LEFT_OUT: Final = {"seen_ranges": ("packets", "samples", "duplicates")}
"""Counters that a rebuild since a moment does not begin at zero in the live tables."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that is not the same: ``live`` and ``rebuilt`` hold the columns that differ, None where it is missing."""

    key: dict[str, Any]
    live: dict[str, Any] | None
    rebuilt: dict[str, Any] | None


@dataclass(slots=True)
class TableResult:
    """How a table compares: rows on each side, and the first rows that differ."""

    table: str
    live_rows: int = 0
    rebuilt_rows: int = 0
    only_live: int = 0
    only_rebuilt: int = 0
    changed: int = 0
    first: list[Difference] = field(default_factory=list)

    @property
    def differences(self) -> int:
        return self.only_live + self.only_rebuilt + self.changed


def merge(live: Iterable[Row], rebuilt: Iterable[Row]) -> Iterator[tuple[Key, bool, bool]]:
    """Keys that are not the same on both sides, as (key, in live, in rebuilt); both sides sorted by (key, content).

    A key may repeat: then its contents are compared one by one.
    """
    left, right = iter(live), iter(rebuilt)
    mine, theirs = next(left, None), next(right, None)
    while mine is not None or theirs is not None:
        if mine is not None and mine == theirs:
            mine, theirs = next(left, None), next(right, None)
        elif mine is not None and theirs is not None and mine[0] == theirs[0]:
            yield mine[0], True, True
            mine, theirs = next(left, None), next(right, None)
        elif theirs is None or (mine is not None and mine[0] < theirs[0]):
            assert mine is not None
            yield mine[0], True, False
            mine = next(left, None)
        else:
            yield theirs[0], False, True
            theirs = next(right, None)


def among(rows: Iterable[Row], keys: Iterable[Key]) -> Iterator[Row]:
    """The rows whose key is one of ``keys``; both in order, no key twice among ``keys``."""
    wanted = iter(keys)
    key = next(wanted, None)
    for row in rows:
        while key is not None and key < row[0]:
            key = next(wanted, None)
        if key == row[0]:
            yield row


class Comparison:
    """One version against the live tables as they were when ``snapshot`` began."""

    def __init__(
        self, snapshot: Connection, other: Connection, live: str, name: str, since: datetime | None, oldest: datetime
    ) -> None:
        self._sides = (snapshot, other)
        self._schemas = (live, name)
        self._times = {"since": sql.Literal(since), "oldest": sql.Literal(oldest)}
        self._since = since

    def table(self, one: Compared, rows: int) -> TableResult:
        """Compare a table; of the rows that differ the first ``rows`` are told."""
        result = TableResult(one.name)
        left, right = (self._asked(one, side) for side in (0, 1))
        counted = (self._count(left, result, "live_rows"), self._count(right, result, "rebuilt_rows"))
        for key, in_live, in_rebuilt in merge(*counted):
            if in_live and in_rebuilt:
                result.changed += 1
            else:
                result.only_live += in_live
                result.only_rebuilt += in_rebuilt
            if len(result.first) < rows:
                result.first.append(self._difference(one, key, in_live, in_rebuilt))
        return result

    def _asked(self, one: Compared, side: int) -> Iterator[Row]:
        rows = self._rows(one, side)
        return rows if one.among is None else among(rows, self._keys(one, one.among, side))

    def _keys(self, one: Compared, question: str, side: int) -> Iterator[Key]:
        """Always as the live tables had them when the snapshot began; ``side`` only tells two readings apart."""
        with self._sides[0].cursor(f"compare_{one.name}_among_{side}") as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(sql.SQL(question).format(**names({"live": self._schemas[0]})))
            yield from cursor

    def _content(self, one: Compared, side: int) -> list[str]:
        left_out = one.left_out + (SINCE_LEFT_OUT.get(one.table, ()) if self._since else ())
        return [name for name in columns(self._sides[side], self._schemas[side], one.table) if name not in left_out]

    def _rows(self, one: Compared, side: int) -> Iterator[Row]:
        key = sql.SQL(", ").join(map(_in_code_order, one.key))
        group = sql.SQL("GROUP BY {}").format(key) if one.grouped else sql.SQL("")
        statement = sql.SQL("SELECT {}, md5({}) AS content FROM {} WHERE {} {} ORDER BY {}, content").format(
            key, self._text(one, side), sql.Identifier(self._schemas[side], one.table), self._condition(one), group, key
        )
        with self._sides[side].cursor(f"compare_{one.name}") as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(statement)
            for row in cursor:
                yield tuple(row[:-1]), row[-1]

    def _text(self, one: Compared, side: int) -> sql.Composable:
        """What of a row must be the same, as one text."""
        if one.grouped:
            return sql.SQL(one.grouped)
        names = sql.SQL(", ").join(map(sql.Identifier, self._content(one, side)))
        return sql.SQL("ROW({})::text").format(names)

    def _condition(self, one: Compared) -> sql.Composed:
        parts = [one.wanted, *([one.wanted_since] if self._since else [])]
        return sql.SQL(" AND ").join(sql.SQL(part).format(**self._times) for part in parts)

    def _count(self, rows: Iterator[Row], result: TableResult, name: str) -> Iterator[Row]:
        for row in rows:
            setattr(result, name, getattr(result, name) + 1)
            yield row

    def _difference(self, one: Compared, key: Key, in_live: bool, in_rebuilt: bool) -> Difference:
        named = dict(zip(one.key, key, strict=True))
        live = self._whole(one, key, 0) if in_live else None
        rebuilt = self._whole(one, key, 1) if in_rebuilt else None
        if live is None or rebuilt is None:
            shown = {name: value for name, value in (live or rebuilt or {}).items() if name not in named}
            return Difference(named, shown if in_live else None, shown if in_rebuilt else None)
        differing = [name for name, value in live.items() if rebuilt.get(name) != value]
        return Difference(
            named, {name: live[name] for name in differing}, {name: rebuilt.get(name) for name in differing}
        )

    def _whole(self, one: Compared, key: Key, side: int) -> dict[str, Any]:
        where = sql.SQL(" AND ").join(sql.SQL("{} = {}").format(sql.Identifier(n), sql.Placeholder()) for n in one.key)
        if one.grouped:
            question = sql.SQL("SELECT {} FROM {} WHERE {}").format(
                sql.SQL(one.grouped), sql.Identifier(self._schemas[side], one.table), where
            )
            found = self._sides[side].execute(question, key).fetchone()
            return {"readings": found[0] if found else None}
        names = self._content(one, side)
        statement = sql.SQL("SELECT {} FROM {} WHERE {} LIMIT 1").format(
            sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names),
            sql.Identifier(self._schemas[side], one.table), where,
        )  # fmt: skip
        row = self._sides[side].execute(statement, key).fetchone()
        return dict(zip(names, row, strict=True)) if row else {}


def _in_code_order(name: str) -> sql.Composed:
    """A key column in the order in which Python sorts it too."""
    return sql.SQL('{} COLLATE "C"' if name == "device" else "{}").format(sql.Identifier(name))


def reading(dsn: str) -> Connection:
    """A connection whose one transaction sees the database as it was at its first question, read-only."""
    connection = psycopg.connect(dsn)
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    connection.execute("SET LOCAL timezone = 'UTC'")
    return connection
