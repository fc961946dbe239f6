"""Connections of the role ``fleetstream_api`` and the one way to use them: a transaction bound to one tenant.

Row-level security reads ``fleetstream.tenant_id``; it is set for the transaction only, so a connection that goes back
to the pool belongs to nobody. Without a tenant every table answers with nothing (keys may be looked up).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from api.errors import BadQuestion, QueryTooLong, StoreUnavailable
from contracts.tables import TENANT_SETTING

Connection = psycopg.AsyncConnection[DictRow]

BIND = "SELECT set_config(%s, %s, true), set_config('statement_timeout', %s, true)"


class Store:
    """A bounded pool; opening it does not wait for the database, so that the API can say that it is away."""

    def __init__(self, dsn: str, size: int, timeout_s: float, statement_timeout_ms: int) -> None:
        self._statement_timeout_ms = statement_timeout_ms
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            dsn,
            min_size=1,
            max_size=size,
            timeout=timeout_s,
            max_waiting=size * 8,
            open=False,
            configure=_configure,
            connection_class=psycopg.AsyncConnection[DictRow],
            kwargs={"row_factory": dict_row, "application_name": "fleetstream-api", "connect_timeout": 5},
            check=AsyncConnectionPool.check_connection,
            name="api",
        )

    async def open(self) -> None:
        await self._pool.open(wait=False)

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def transaction(
        self, tenant_id: int | None, writable: bool = False, one_moment: bool = False
    ) -> AsyncIterator[Connection]:
        """A transaction that sees one tenant, read-only unless asked. Raises StoreUnavailable, QueryTooLong,
        and BadQuestion for text that PostgreSQL cannot hold.

        ``one_moment``: all its statements see the store as it was at the first. Not for what asks the catalogue of
        tables which partitions are left (``queries.archive``): a dropped one is gone for every snapshot.
        """
        tenant = "" if tenant_id is None else str(tenant_id)
        try:
            async with self._pool.connection() as connection, connection.transaction():
                if writable:
                    await connection.execute("SET TRANSACTION READ WRITE")
                if one_moment:
                    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                await connection.execute(BIND, (TENANT_SETTING, tenant, str(self._statement_timeout_ms)))
                yield connection
        except psycopg.errors.QueryCanceled as error:
            raise QueryTooLong(
                f"the question took longer than {self._statement_timeout_ms} ms; ask for less"
            ) from error
        except psycopg.DataError as error:
            if not isinstance(error, psycopg.errors.UntranslatableCharacter) and "NUL" not in str(error):
                raise
            raise BadQuestion(
                "nul_character",
                "text that holds the character NUL can neither be kept nor be found; leave it out",
                "text",
            ) from error
        except (PoolTimeout, psycopg.OperationalError) as error:
            raise StoreUnavailable("the store does not answer just now; ask again") from error

    async def check(self) -> None:
        """Raises StoreUnavailable when a trivial question is not answered."""
        async with self.transaction(None) as connection:
            await connection.execute("SELECT 1")


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)
    await connection.execute("SET TIME ZONE 'UTC'")
    await connection.execute("SET default_transaction_read_only = on")
    # a plan for no values in particular expects one asset of a search, and loops over ten thousand for each of them
    await connection.execute("SET plan_cache_mode = force_custom_plan")
