"""What a rebuild fills and what it carries over: nothing that ingest writes may be forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from contracts.book import BOOK_TABLES
from contracts.tables import PACKET_TABLE
from infra.versions import FIRST, OWN, REBUILT, carried_tables

INGEST = Path(__file__).parents[2] / "stream_jobs" / "sinks" / "statements.py"
CARRIED_ON_PURPOSE = {"outbox", "epoch_owners"}
"""What a rebuild says is thrown away; whose an epoch is was decided by the live tables."""


def test_everything_that_ingest_writes_is_rebuilt() -> None:
    written = set(re.findall(r"INSERT INTO (\w+)", INGEST.read_text(encoding="utf-8"))) | {PACKET_TABLE}
    assert len(written) > 8
    assert written - CARRIED_ON_PURPOSE <= set(REBUILT)


def test_every_other_table_is_carried(schema: str, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        carried = set(carried_tables(connection, schema))
        statement = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename !~ '^packet_rows_'"
        there = {name for (name,) in connection.execute(statement, (schema,)).fetchall()}
    assert {"outbox", "api_keys", "window_publications", "archive_files", *FIRST} <= carried
    assert carried | set(REBUILT) | set(OWN) == there
    assert set(FIRST) == set(BOOK_TABLES), "a restore needs what a rebuild needs first"
