"""A connection that lives as long as its process, and work that is repeated when the database takes it back.

Spark's ``local[N]`` never repeats a failed task, so deadlocks, serialization failures and lost connections are
repeated here, with a bounded wait that outlasts a restart of the database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from stream_jobs.errors import StoreBusy
from stream_jobs.sinks.pgbinary import register

FIRST_WAIT_S = 0.02
LONGEST_WAIT_S = 2.0
GIVE_UP_S = 90.0
"""A database that stays away longer ends the job with an error; the supervisor starts it again."""

VALUE_LIMIT_CLASS = "54"
"""SQLSTATE class "program limit exceeded": psycopg calls it operational, yet the same value meets it every time."""

Connection = psycopg.Connection[tuple[Any, ...]]
Result = TypeVar("Result")
log = logging.getLogger(__name__)
_open: dict[str, Connection] = {}

REPEATABLE = (
    errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable, psycopg.OperationalError,
    psycopg.InterfaceError,
)  # fmt: skip


def connect(dsn: str) -> Connection:
    """A fresh connection that knows our array parameters, for transactions begun by hand."""
    connection = psycopg.connect(dsn, autocommit=True, connect_timeout=5, application_name="fleetstream_sink")
    connection.execute("SET lock_timeout = '30s'")
    connection.execute("SET idle_in_transaction_session_timeout = '120s'")
    register(connection)
    return connection


def shared(dsn: str) -> Connection:
    """This process's connection, opened when first needed; one thread per process uses it."""
    held = _open.get(dsn)
    if held is None or held.closed or held.broken:
        _open[dsn] = held = connect(dsn)
    return held


def drop(dsn: str) -> None:
    """Forget a connection that failed."""
    held = _open.pop(dsn, None)
    if held is not None:
        held.close()


def drop_all() -> None:
    """Close what this process holds: at its end, or between two schemas."""
    for dsn in list(_open):
        drop(dsn)


def repeated(dsn: str, work: Callable[[Connection], Result]) -> tuple[Result, int]:
    """Run ``work`` until it commits; also how often it was repeated. Raises StoreBusy."""
    wait_s, began_s, retries = FIRST_WAIT_S, time.monotonic(), 0
    while True:
        try:
            return work(shared(dsn)), retries
        except REPEATABLE as error:
            if (getattr(error, "sqlstate", None) or "").startswith(VALUE_LIMIT_CLASS):
                raise
            drop(dsn)
            if time.monotonic() - began_s > GIVE_UP_S:
                raise StoreBusy(
                    f"the store did not take a batch for {GIVE_UP_S:.0f} s ({type(error).__name__}); "
                    "nothing was lost, the log still holds it: check the database"
                ) from error
            retries += 1
            log.warning("event=repeat attempt=%d error=%s", retries, type(error).__name__)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
