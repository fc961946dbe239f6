"""A connection that works alone: a session-level advisory lock lets one holder per schema in."""

from __future__ import annotations

from typing import Any, ClassVar

import psycopg

from api.errors import StoreUnavailable
from contracts.locks import OF_SCHEMA

LOCK = f"SELECT pg_try_advisory_lock(%s, {OF_SCHEMA})"


class Alone:
    """Opens and closes the connection; what is asked over it is the subclass's."""

    name: ClassVar[str]
    """Who it is, to PostgreSQL and in errors."""
    kept: ClassVar[str]
    """What is not lost while PostgreSQL does not answer, as the error says it."""
    lock: ClassVar[int]
    """First half of the lock's key, from ``contracts.locks``."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def open(self) -> bool:
        """Connect and try to become the one; False when another one is. Raises StoreUnavailable."""
        try:
            await self.close()
            self._connection = await psycopg.AsyncConnection.connect(
                self._dsn, autocommit=True, application_name=f"fleetstream-{self.name}", connect_timeout=5
            )
            row = await (await self._connection.execute(LOCK.encode(), (self.lock,))).fetchone()
        except psycopg.Error as error:
            raise self._unavailable(error) from error
        if row is None or not row[0]:
            await self.close()
            return False
        return True

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        self._connection = None

    def _unavailable(self, error: psycopg.Error) -> StoreUnavailable:
        return StoreUnavailable(f"PostgreSQL did not answer the {self.name} ({type(error).__name__}); {self.kept}")
