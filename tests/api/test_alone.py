"""One relay and one clerk per stack, also after the schema was exchanged for another of the same name."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import sql

from api.queries.alone import Alone
from api.queries.clerk import ClerkStore
from api.queries.outbox import Outbox
from tests.api.fix_api import Fleet


@pytest.mark.parametrize("kind", [Outbox, ClerkStore])
def test_a_second_one_stays_out_when_the_schema_is_exchanged(kind: type[Alone], fleet: Fleet, schema: str) -> None:
    def rename(connection: psycopg.Connection[object], old: str, new: str) -> None:
        names = sql.Identifier(old), sql.Identifier(new)
        connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(*names))

    async def both() -> list[bool]:
        first, second = kind(fleet.sink_dsn), kind(fleet.sink_dsn)
        try:
            opened = [await first.open(), await second.open()]
            with psycopg.connect(fleet.dsn, autocommit=True) as owner:
                rename(owner, schema, f"{schema}_old")
                try:
                    owner.execute(
                        sql.SQL("CREATE SCHEMA {0}; GRANT USAGE ON SCHEMA {0} TO fleetstream_sink").format(
                            sql.Identifier(schema)
                        )
                    )
                    opened.append(await second.open())
                finally:
                    owner.execute(sql.SQL("DROP SCHEMA IF EXISTS {}").format(sql.Identifier(schema)))
                    rename(owner, f"{schema}_old", schema)
            await first.close()
            return [*opened, await second.open()]
        finally:
            await first.close()
            await second.close()

    assert asyncio.run(both()) == [True, False, False, True]
