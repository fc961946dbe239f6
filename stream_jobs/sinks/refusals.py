"""A record that the store refuses must not stop the others: find it, set it aside with its bytes, go on.

Everything foreseen is checked before the store is asked, so what comes here is a surprise: a value outside a column's
range, a broken constraint. Such an error is the same at every attempt; repeating it would stop the line for ever.
The batch is tried in halves, each in a transaction that is rolled back, until single records are left; then one
transaction stores everything else and quarantines those as ``store_refused``.

A store that refuses everything is not a fault of the records: when no record of three or more devices gets in, the
job stops with ``StoreRefuses`` and nothing is set aside.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import psycopg

from stream_jobs.accounts import clean
from stream_jobs.arithmetic import Bools, Ints
from stream_jobs.errors import StoreRefuses
from stream_jobs.sinks.base import Receipt
from stream_jobs.sinks.connection import VALUE_LIMIT_CLASS, Connection, repeated
from stream_jobs.sinks.transaction import Batch

FEWEST_WITNESSES = 3
"""From this many devices on, a batch of which nothing gets in speaks against the store, not against the records."""

MOST_WITNESSES = 16
CARDINALITY_CLASS = "21"
"""SQLSTATE of two rows of one statement that meet in the same key."""

CLIENT_SIDE = (ArithmeticError, ValueError, LookupError, struct.error)
"""What encoding a value for the store may raise before anything is sent."""

log = logging.getLogger(__name__)


def commit(dsn: str, batch: Batch) -> list[Receipt]:
    """Commit ``batch``, without the records that the store refuses. Raises StoreBusy, StoreRefuses."""
    try:
        receipts, retries = repeated(dsn, batch.commit)
    except Exception as error:
        if not blames_a_record(error):
            raise
        receipts, retries = _commit_the_rest(dsn, batch, error)
    return [replace(receipt, retries=retries) for receipt in receipts]


def blames_a_record(error: BaseException) -> bool:
    """Whether another batch without some record could pass. Lost connections and a wrong schema say no."""
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return True
    if isinstance(error, psycopg.ProgrammingError):
        return error.sqlstate is None or error.sqlstate.startswith(CARDINALITY_CLASS)
    if isinstance(error, psycopg.OperationalError):
        return (error.sqlstate or "").startswith(VALUE_LIMIT_CLASS)
    return isinstance(error, CLIENT_SIDE)


def describe(error: BaseException) -> dict[str, object]:
    """What the store said, for the quarantine; the record's own bytes lie beside it."""
    if not isinstance(error, psycopg.Error):
        return {"error": type(error).__name__, "message": clean(str(error))}
    said: dict[str, object] = {"sqlstate": error.sqlstate, "constraint": error.diag.constraint_name}
    message = clean(error.diag.message_primary or str(error))
    told: dict[str, object] = {"error": type(error).__name__, "message": message}
    return told | {name: value for name, value in said.items() if value}


def _commit_the_rest(dsn: str, batch: Batch, error: BaseException) -> tuple[list[Receipt], int]:
    rows = np.flatnonzero(batch.waiting)
    _hear_witnesses(dsn, batch, rows, error)
    aside = _culprits(dsn, batch, rows)
    while True:
        try:
            receipts, retries = repeated(dsn, partial(batch.commit, aside=aside))
        except Exception as again:
            if not blames_a_record(again):
                raise
            aside |= _last_straw(dsn, batch, aside)
            continue
        for row, reason in sorted(aside.items()):
            log.error("event=record_refused %s error=%s", batch.place(row), reason["error"])
        return receipts, retries


def _hear_witnesses(dsn: str, batch: Batch, rows: Ints, error: BaseException) -> None:
    """Raise StoreRefuses when not one of the first records of several devices gets in."""
    for kind in np.unique(batch.kinds[rows]).tolist():
        mine = rows[batch.kinds[rows] == kind]
        _, first = np.unique(batch.owners[mine], return_index=True)
        witnesses = mine[np.sort(first)][:MOST_WITNESSES].tolist()
        if len(witnesses) < FEWEST_WITNESSES:
            continue
        if all(_refusal(dsn, batch, np.array([row]), {}) is not None for row in witnesses):
            where = error.diag.constraint_name or error.diag.table_name if isinstance(error, psycopg.Error) else None
            raise StoreRefuses(
                f"the store takes no record of any of {len(witnesses)} devices ({type(error).__name__}, "
                f"{where or 'no place named'}); nothing was stored or set aside, the log still holds it: "
                "mend the schema, then start again"
            ) from error


def _culprits(dsn: str, batch: Batch, rows: Ints) -> dict[int, dict[str, object]]:
    """Records that are refused even alone. About two batches' worth of work for each."""
    error = _refusal(dsn, batch, rows, {})
    if error is None:
        return {}
    if len(rows) == 1:
        return {int(rows[0]): describe(error)}
    middle = len(rows) // 2
    return _culprits(dsn, batch, rows[:middle]) | _culprits(dsn, batch, rows[middle:])


def _last_straw(dsn: str, batch: Batch, aside: Mapping[int, dict[str, object]]) -> dict[int, dict[str, object]]:
    """The first record that is refused only together with those before it."""
    rows = np.array([row for row in np.flatnonzero(batch.waiting).tolist() if row not in aside], np.int64)
    good, bad = 0, len(rows)
    told: dict[str, object] = {"error": "Unknown"}
    while bad - good > 1:
        middle = (good + bad) // 2
        error = _refusal(dsn, batch, rows[:middle], aside)
        good, bad = (middle, bad) if error is None else (good, middle)
        told = describe(error) if error is not None else told
    if not len(rows):
        raise StoreRefuses("the store refuses a quarantine row; nothing was stored: check the table quarantined")
    return {int(rows[bad - 1]): told | {"together": True}}


def _refusal(dsn: str, batch: Batch, rows: Ints, aside: Mapping[int, dict[str, object]]) -> BaseException | None:
    """What the store says to these records alone, in a transaction that is rolled back."""
    only: Bools = np.zeros(len(batch.waiting), np.bool_)
    only[rows] = True

    def attempt(connection: Connection) -> None:
        batch.attempt(connection, only, aside)

    try:
        repeated(dsn, attempt)
    except Exception as error:
        if blames_a_record(error):
            return error
        raise
    return None
