"""The drill on a real PostgreSQL: back up, write on, lose the store, bring it back: rows and custody as they were."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from contracts.book import Page
from contracts.edr.custody import Request, decide, entry_fields
from contracts.tables import ROLE_API, ROLE_EVIDENCE, ROLE_SINK, TENANT_SETTING
from infra import backup_restore
from infra.backup import MANIFEST, TABLES, create, read_manifest, verify
from infra.backup_restore import restore_backup
from infra.custody_check import examine
from infra.errors import BackupRefused
from infra.migrate import read_migrations
from infra.versions import OWN
from tests.stream_jobs.history_rows import START_MS, RowOfPacket, enrol_car, insert_rows

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DIGEST = "SELECT count(*), coalesce(sum(hashtextextended((to_jsonb(t) - 'stored_by')::text, 0)), 0) FROM {} t"
TOPIC = "00000000-0000-0000-0000-00000000000a"


@dataclass(frozen=True, slots=True)
class Store:
    """One car with packets, a key, a custody entry, a position in the log; and a model's file."""

    dsn: str
    superuser_dsn: str
    schema: str
    role: Callable[[str], str]
    models: Path
    device: int
    tenant: int

    def packets(self, *numbers: int) -> None:
        rows = [RowOfPacket(seq, START_MS + seq * 1_000, [(1, 0, 1.5, 0)]) for seq in numbers]
        insert_rows(self.role(ROLE_SINK), self.device, self.tenant, rows)

    def read_custody(self) -> None:
        asked = Request("Jürgen\n\\N", "k1", "admin", "list")
        with psycopg.connect(self.role(ROLE_API)) as api:
            api.execute("SELECT set_config(%s, %s, false)", (TENANT_SETTING, str(self.tenant)))
            fields = entry_fields(asked, decide(asked))
            api.execute("SELECT edr_custody_enter(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", fields)

    def digests(self) -> dict[str, tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as connection:
            tables = connection.execute(TABLES, (self.schema, list(OWN))).fetchall()
            asked = {str(table): sql.SQL(DIGEST).format(sql.Identifier(table)) for table, _ in tables}
            return {table: connection.execute(one).fetchall()[0] for table, one in asked.items()}

    def back_up(self, folder: Path) -> Path:
        create(self.superuser_dsn, self.schema, folder, self.models, NOW)
        return folder

    def lose(self) -> None:
        with psycopg.connect(self.superuser_dsn) as connection:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self.schema)))
        for file in self.models.iterdir():
            file.unlink()

    def bring_back(self, folder: Path, *pages: Page) -> Any:
        return restore_backup(self.superuser_dsn, self.schema, folder, self.models, pages, NOW)


@pytest.fixture
def store(
    schema: str, schema_dsn: str, postgres_dsn: str, role_dsn: Callable[[str], str], tmp_path: Path
) -> Iterator[Store]:
    device, tenant = enrol_car(schema_dsn, "car-1")
    made = Store(schema_dsn, postgres_dsn, schema, role_dsn, tmp_path / "models", device, tenant)
    made.models.mkdir()
    (made.models / "m.json").write_text("{}")
    made.packets(1, 2, 4)
    made.read_custody()
    with psycopg.connect(schema_dsn) as connection:
        connection.execute(
            "INSERT INTO ingest_offsets (topic_id, kafka_partition, topic, next_offset)"
            " VALUES (%s, 0, 'fleet.live', 3)",
            (TOPIC,),
        )
    yield made


def test_the_drill(store: Store, tmp_path: Path) -> None:
    was, folder = store.digests(), store.back_up(tmp_path / "monday")
    store.packets(5, 6)
    store.read_custody()
    assert store.digests() != was
    store.lose()
    done = store.bring_back(folder)
    assert store.digests() == was
    assert (done.rows, done.models) == (sum(int(count) for count, _ in was.values()), 1)
    assert (store.models / "m.json").read_text() == "{}"
    (found,) = examine(store.role(ROLE_EVIDENCE), None)
    assert found.custody_entries == 1 and found.breaks == ()
    with psycopg.connect(store.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM packet_rows WHERE stored_by IS NOT NULL").fetchone() == (0,)
        position = connection.execute("SELECT topic_id::text, next_offset FROM ingest_offsets").fetchall()
    assert position == [(TOPIC, 3)]  # what was written after the backup comes again from the log, in one transaction
    store.read_custody()  # the chain goes on, and numbers given out are not given out again
    (found,) = examine(store.role(ROLE_EVIDENCE), None)
    assert found.custody_entries == 2 and found.breaks == ()
    assert enrol_car(store.dsn, "car-2")[0] > store.device


def test_who_was_registered_after_the_backup_comes_from_the_log_s_book(store: Store, tmp_path: Path) -> None:
    """Records in the log name their keys: a key given to somebody else would give their readings to somebody else."""
    folder = store.back_up(tmp_path / "monday")
    later, _ = enrol_car(store.dsn, "car-2")
    with psycopg.connect(store.dsn) as connection:
        rows = {
            table: [one for (one,) in connection.execute(f"SELECT to_jsonb(t) FROM {table} t".encode())]
            for table in ("tenants", "assets", "devices", "bindings")
        }
    store.lose()
    done = store.bring_back(folder, *(Page(table, tuple(found)) for table, found in rows.items()))
    assert done.registered_later == 1
    with psycopg.connect(store.dsn) as connection:
        told = connection.execute("SELECT device_key FROM devices WHERE device = 'car-2'").fetchall()
        assert told == [(later,)]
        assert connection.execute("SELECT count(*) FROM outbox WHERE topic = 'book'").fetchone() == (0,)
    assert enrol_car(store.dsn, "car-3")[0] > later


def test_a_store_in_use_is_refused_and_stays(store: Store, tmp_path: Path) -> None:
    folder, was = store.back_up(tmp_path / "monday"), store.digests()
    with pytest.raises(BackupRefused, match="holds rows in"):
        store.bring_back(folder)
    with pytest.raises(BackupRefused, match="not empty"):
        store.back_up(folder)
    assert store.digests() == was


def test_what_is_not_as_it_was_written_is_refused_before_anything_is_changed(store: Store, tmp_path: Path) -> None:
    folder, was = store.back_up(tmp_path / "monday"), store.digests()
    assert verify(folder) == read_manifest(folder)
    for name in ("tables/evidence_custody.gz", "models/m.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(BackupRefused, match=f"{name} is not what was written"):
            store.bring_back(folder)
        (folder / name).unlink()
        with pytest.raises(BackupRefused, match=f"{name} of the backup is missing"):
            store.bring_back(folder)
        (folder / name).write_bytes(whole)
    said = json.loads((folder / MANIFEST).read_bytes())
    last = read_migrations()[-1].name
    said["migrations"][last] = hashlib.sha256(b"another").hexdigest()
    (folder / MANIFEST).write_text(json.dumps(said))
    with pytest.raises(BackupRefused, match=f"another {last}"):
        store.bring_back(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(BackupRefused, match="no backup that was finished"):
        store.bring_back(folder)
    assert store.digests() == was


def test_a_restore_that_dies_leaves_an_empty_store_and_begins_anew(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, folder = store.digests(), store.back_up(tmp_path / "monday")
    store.lose()
    real = backup_restore._load

    def dies(connection: Any, of: Path, one: Any) -> None:
        real(connection, of, one)
        if one.table == "packet_rows":
            with psycopg.connect(store.superuser_dsn, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

    monkeypatch.setattr(backup_restore, "_load", dies)
    with pytest.raises(psycopg.OperationalError):
        store.bring_back(folder)
    monkeypatch.undo()
    store.bring_back(folder)
    assert store.digests() == was
