"""A backup brought back into an empty store: tables of the backup's version, its rows in one transaction, then ours.

Ingest goes on at the offsets that came with the rows, as after a crash: the log brings what was stored after the
backup, each record once. Who was registered after it is in the log's book, whose keys records in the log already name.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from contracts.book import BOOK_TABLES, Page
from infra.backup import CHUNK_BYTES, TABLES, Backup, TableFile, verify
from infra.errors import BackupRefused
from infra.migrate import Migration, maintain, migrate, read_migrations
from infra.restore import write_rows
from infra.versions import KEEP_ALL_DAYS, OWN, one_at_a_time

SEEDED = ("signals", "marks")
"""Tables that migrating fills; rows in any other mean that the store is in use."""
Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """What is in the store again."""

    made_at: str
    tables: int
    rows: int
    registered_later: int
    """Devices of the log's book that the backup did not know."""
    models: int


def restore_backup(
    dsn: str, schema: str, folder: Path, models: Path, book: Iterable[Page], now: datetime
) -> BroughtBack:
    """Fill an empty store from a backup; ``book``: pages of the log's book, none when there is no log.

    Raises BackupRefused for a store that holds something, a file that is not what was written, another version's
    tables. A kill leaves the store empty, or filled and whole.
    """
    with one_at_a_time(dsn, f"{schema}_restored"):
        made = verify(folder)
        wanted = _migrations_of(made)
        pages = list(book)
        check_empty(dsn, schema)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        migrate(dsn, schema, wanted)
        maintain(dsn, schema, now, KEEP_ALL_DAYS)
        with psycopg.connect(dsn) as connection:
            connection.execute("SELECT set_config('search_path', %s, true)", (sql.Identifier(schema).as_string(),))
            connection.execute("SET LOCAL session_replication_role = replica")  # rows say it all; no trigger adds to it
            for one in made.tables:
                _load(connection, folder, one)
            for name, last in made.sequences.items():
                connection.execute("SELECT setval(quote_ident(%s)::regclass, %s)", (name, last))
            later = _write_book(connection, schema, pages)
        migrate(dsn, schema)
    return BroughtBack(made.made_at, len(made.tables), made.rows, later, _bring_models(made, folder, models))


def check_empty(dsn: str, schema: str) -> None:
    """Raises BackupRefused naming a table that holds rows."""
    with psycopg.connect(dsn) as connection:
        for table, _ in connection.execute(TABLES, (schema, [*OWN, *SEEDED])).fetchall():
            asked = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(schema, table))
            if connection.execute(asked).fetchone() == (True,):
                raise BackupRefused(
                    f"the store holds rows in {table}, so it is not lost; nothing was changed: to go back really, drop "
                    f"the schema {schema} first"
                )


def _migrations_of(made: Backup) -> list[Migration]:
    known = {one.name: one for one in read_migrations()}
    for name, digest in made.migrations.items():
        if name not in known or known[name].sha256 != digest:
            raise BackupRefused(
                f"the backup's tables were made by a version with another {name}; nothing was changed: install that one"
            )
    return [known[name] for name in sorted(made.migrations)]


def _load(connection: Connection, folder: Path, one: TableFile) -> None:
    table, columns = sql.Identifier(one.table), sql.SQL(", ").join(map(sql.Identifier, one.columns))
    connection.execute(sql.SQL("DELETE FROM {}").format(table))
    with gzip.open(folder / one.file) as file, connection.cursor() as cursor:
        with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)) as copy:
            while data := file.read(CHUNK_BYTES):
                copy.write(data)
        found = cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
    if found != (one.rows,):
        raise BackupRefused(f"{one.file} gave another number of rows than {one.rows}; the store was left empty")


def _write_book(connection: Connection, schema: str, pages: list[Page]) -> int:
    """How many devices the backup did not know. A book without devices is of another log and says nothing."""
    if not any(page.table == "devices" and page.rows for page in pages):
        return 0
    count = "SELECT count(*) FROM devices"
    before = connection.execute(count).fetchall()[0][0]
    for table in BOOK_TABLES:
        rows = [row for page in pages if page.table == table for row in page.rows]
        write_rows(connection, schema, table, rows)
    connection.execute("DELETE FROM outbox WHERE topic = 'book'")  # older pages than those of the log
    return max(0, int(connection.execute(count).fetchall()[0][0]) - int(before))


def _bring_models(made: Backup, folder: Path, models: Path) -> int:
    """Files are named by their hash, so one that is there is the same one."""
    models.mkdir(parents=True, exist_ok=True)
    missing = [one for one in made.models if not (models / one.name).exists()]
    for one in missing:
        draft = models / f".{one.name}.draft"
        shutil.copyfile(folder / one.file, draft)
        draft.replace(models / one.name)
    return len(missing)
