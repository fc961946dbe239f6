"""A backup of the store: every table at one snapshot, each in a file with its hash; the manifest is written last.

What log and archive hold is made again from them (``infra.restore``); a backup keeps what only the store has. Files are
PostgreSQL's own text rows, compressed, so that they can be read without this program.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel, sql

from contracts.errors import TryLater
from infra.errors import BackupRefused
from infra.paths import PRIVATE_FILE, write_private
from infra.versions import OWN

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
CHUNK_BYTES: Final = 1 << 20
MOST_MANIFEST_BYTES: Final = 64 << 20
EMPTIED: Final = ("packet_rows", "stored_by")
"""Numbers of transactions mean nothing in another cluster: packets of a backup are in no feed (028_feed.sql)."""
TABLES: Final = """
SELECT c.relname, (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
FROM pg_class c WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND c.relname <> ALL (%s) ORDER BY 1"""
SEQUENCES: Final = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = %s AND last_value IS NOT NULL"
Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class TableFile:
    """The rows of one table. ``sha256``: of the file as it lies there, hexadecimal."""

    table: str
    columns: tuple[str, ...]
    rows: int
    size_bytes: int
    sha256: str

    @property
    def file(self) -> str:
        return f"tables/{self.table}.gz"


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of the folder of models, which has no other copy."""

    name: str
    size_bytes: int
    sha256: str

    @property
    def file(self) -> str:
        return f"models/{self.name}"


@dataclass(frozen=True, slots=True)
class Position:
    """Where ingest goes on in the log after a restore."""

    topic: str
    topic_id: str
    partition: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Backup:
    """What the manifest says."""

    made_at: str
    migrations: Mapping[str, str]
    """Name to SHA-256 of each migration applied: the version of the tables."""
    tables: tuple[TableFile, ...]
    sequences: Mapping[str, int]
    positions: tuple[Position, ...]
    models: tuple[CopiedFile, ...]
    archive_files: int
    """Files that the store knows in the archive's folder; that folder is not copied."""

    @property
    def files(self) -> tuple[TableFile | CopiedFile, ...]:
        return (*self.tables, *self.models)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.tables)


def create(dsn: str, schema: str, folder: Path, models: Path, now: datetime) -> Backup:
    """Write a backup into ``folder``. Raises BackupRefused when it holds something, TryLater when the store is away."""
    if folder.exists() and any(folder.iterdir()):
        raise BackupRefused(f"{folder} is not empty; nothing was written: name a new folder")
    try:
        with psycopg.connect(dsn) as connection:
            tables = [(str(name), tuple(columns)) for name, columns in _ask(connection, TABLES, schema, list(OWN))]
            if not tables:
                raise BackupRefused(f"there is no schema {schema} with tables; nothing was written")
        for part in (folder, folder / "tables", folder / "models"):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
        with psycopg.connect(dsn) as connection:
            connection.isolation_level, connection.read_only = IsolationLevel.REPEATABLE_READ, True
            names = [sql.Identifier(schema, table) for table, _ in tables]
            # before the snapshot is taken: a partition dropped after it would take its rows out of the backup
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(sql.SQL(", ").join(names)))
            made = _read(connection, schema, tables, folder, models, now)
    except psycopg.OperationalError as error:
        raise TryLater(
            f"the store did not answer ({type(error).__name__}); {folder} is no backup, remove it"
        ) from error
    write_private(folder / MANIFEST, json.dumps({"format": FORMAT, **asdict(made)}, indent=1).encode())
    return made


def verify(folder: Path) -> Backup:
    """Read the manifest and every file. Raises BackupRefused naming what is not as it was written."""
    made = read_manifest(folder)
    for one in made.files:
        path = folder / one.file
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            raise BackupRefused(f"{one.file} of the backup is missing; nothing was changed: take another backup")
        if (path.stat().st_size, hash_of(path)) != (one.size_bytes, one.sha256):
            raise BackupRefused(
                f"{one.file} is not what was written (its SHA-256 differs); nothing was changed: take another backup"
            )
    return made


def read_manifest(folder: Path) -> Backup:
    """Raises BackupRefused for a folder that holds no whole backup."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            said = json.loads(file.read(MOST_MANIFEST_BYTES))
        if said.pop("format") != FORMAT:
            raise BackupRefused(f"{folder} was written by another version; nothing was changed: use that version")
        said["tables"] = tuple(TableFile(**{**one, "columns": tuple(one["columns"])}) for one in said["tables"])
        said["positions"] = tuple(Position(**one) for one in said["positions"])
        said["models"] = tuple(CopiedFile(**one) for one in said["models"])
        return Backup(**said)
    except OSError as error:
        raise BackupRefused(
            f"{folder} holds no backup that was finished ({MANIFEST}: {error.strerror}); nothing was changed"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupRefused(f"{folder / MANIFEST} cannot be read; nothing was changed: take another backup") from error


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(
    connection: Connection, schema: str, tables: list[tuple[str, tuple[str, ...]]], folder: Path, models: Path,
    now: datetime,
) -> Backup:  # fmt: skip
    name = sql.Identifier(schema)
    positions = _ask(
        connection,
        sql.SQL(
            "SELECT topic, topic_id::text, kafka_partition, next_offset FROM {}.ingest_offsets ORDER BY 1, 3"
        ).format(name),
    )
    archived = _ask(connection, sql.SQL("SELECT count(*) FROM {}.archive_files").format(name))[0][0]
    migrations = _ask(connection, sql.SQL("SELECT name, sha256 FROM {}.schema_migrations ORDER BY 1").format(name))
    written = tuple(_write_table(connection, schema, table, columns, folder) for table, columns in tables)
    # numbers given out are no part of a snapshot; read last, they are never behind a row
    sequences = {str(one): int(last) for one, last in _ask(connection, SEQUENCES, schema)}
    return Backup(
        f"{now:%Y-%m-%dT%H:%M:%SZ}", {str(one): str(digest) for one, digest in migrations}, written, sequences,
        tuple(Position(*row) for row in positions), _copy_models(models, folder), int(archived),
    )  # fmt: skip


def _write_table(connection: Connection, schema: str, table: str, columns: tuple[str, ...], folder: Path) -> TableFile:
    wanted = [
        sql.SQL("NULL") if (table, column) == EMPTIED else sql.Identifier(column) for column in columns
    ]  # fmt: skip
    statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
        sql.SQL(", ").join(wanted), sql.Identifier(schema, table)
    )
    path, rows = folder / "tables" / f"{table}.gz", 0
    with open(path, "xb", opener=_private) as plain:
        with (
            gzip.GzipFile(filename="", fileobj=plain, mode="wb", compresslevel=1, mtime=0) as packed,
            connection.cursor().copy(statement) as copy,
        ):
            for data in copy:
                rows += bytes(data).count(b"\n")  # line feeds in values are escaped
                packed.write(data)
        plain.flush()
        os.fsync(plain.fileno())
    return TableFile(table, columns, rows, path.stat().st_size, hash_of(path))


def _copy_models(models: Path, folder: Path) -> tuple[CopiedFile, ...]:
    found = []
    for source in sorted(models.iterdir()) if models.is_dir() else ():
        if source.is_file() and not source.name.startswith("."):
            copy = folder / "models" / source.name
            shutil.copyfile(source, copy)
            copy.chmod(PRIVATE_FILE)
            found.append(CopiedFile(source.name, copy.stat().st_size, hash_of(copy)))
    return tuple(found)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


def _ask(connection: Connection, statement: Any, *values: object) -> list[tuple[Any, ...]]:
    return connection.execute(statement, values or None).fetchall()
