"""Evidence in the store: no role changes it, none reads it around the custody log; SQL writes what Python hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import sql

from contracts.edr.custody import Request, decide, entry_fields
from contracts.edr.ledger import CUSTODY, Entry, chain_breaks
from contracts.tables import ROLE_API, ROLE_EVIDENCE, ROLE_LINKAGE, ROLE_READER, ROLE_SINK, ROLE_TENANT, TENANT_SETTING
from infra.enrol import Enrolment, enrol

EVENT = "00" * 16 + "-1-1"
CAPSULE = b"sealed bytes"
RECORD = hashlib.sha256(CAPSULE).digest()
TABLES = (
    "evidence_records", "evidence_capsules", "evidence_elements", "evidence_linkage", "evidence_custody",
    "evidence_log", "evidence_roots", "evidence_pieces", "evidence_attachments", "evidence_asides", "evidence_owners",
    "evidence_heads",
)  # fmt: skip
Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Store:
    """One record with its linkage, of tenant north; south has nothing."""

    connect: Callable[[str], Connection]
    north: int
    south: int

    def api(self, tenant: int, custody_no: int = 0) -> Connection:
        connection = self.connect(ROLE_API)
        connection.autocommit = True
        connection.execute("SELECT set_config(%s, %s, false)", (TENANT_SETTING, str(tenant)))
        connection.execute("SELECT set_config('fleetstream.custody_no', %s, false)", (str(custody_no),))
        return connection

    def enter(self, connection: Connection, asked: Request) -> int:
        fields = entry_fields(asked, decide(asked))
        row = connection.execute("SELECT edr_custody_enter(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", fields).fetchone()
        assert row is not None
        return int(row[0])

    def may(self, tenant: int, action: str, subject: str = "", **more: str) -> Connection:
        """A connection of the API whose custody entry is written and committed."""
        connection = self.api(tenant)
        number = self.enter(connection, Request("me", "k1", "admin", action, subject, **more))
        connection.execute("SELECT set_config('fleetstream.custody_no', %s, false)", (str(number),))
        return connection


@pytest.fixture
def store(role_dsn: Callable[[str], str]) -> Iterator[Store]:
    opened: list[Connection] = []

    def connect(role: str) -> Connection:
        opened.append(psycopg.connect(role_dsn(role)))
        return opened[-1]

    with connect(ROLE_SINK) as connection:
        north, south = enrol(
            connection, [Enrolment("car-1", "north", "Car 1", "car"), Enrolment("car-2", "south", "Car 2", "car")]
        )
    with connect(ROLE_EVIDENCE) as connection:
        connection.execute(
            "INSERT INTO evidence_records VALUES (%s, %s, %s, %s, %s, 1, %s, 'part563-2012', 1, '', 1, 'simulated',"
            " 'delta_v', true, false, '{}', '', 'ed25519', %s, 'simulated', now(), now(), gen_random_uuid(), 0, 1, 1)",
            (RECORD, north.tenant_id, north.device_key, EVENT, bytes(16), bytes(32), bytes(32)),
        )
        connection.execute("INSERT INTO evidence_capsules VALUES (%s, %s, %s)", (RECORD, north.tenant_id, CAPSULE))
        connection.execute(
            "INSERT INTO evidence_elements VALUES (%s, 1, %s, 'speed', 'recorded', 'series', 'km/h', 1, '{}',"
            " '{50,NULL}', -1, 100000, NULL, false)",
            (RECORD, north.tenant_id),
        )
        connection.execute(
            "INSERT INTO evidence_linkage VALUES (%s, %s, %s, %s, 1790000000000, true, 'VIN', 'driver', 490000000,"
            " 84000000, 10, now(), 2)",
            (north.tenant_id, north.device_key, EVENT, bytes(32)),
        )
    yield Store(connect, north.tenant_id, south.tenant_id)
    for connection in opened:
        connection.close()


def count(connection: Connection, query: str, *values: object) -> int:
    return len(connection.execute(query.encode(), values).fetchall())


def entries(connection: Connection) -> list[Entry]:
    rows = connection.execute(
        "SELECT entry_no, at_ms, previous_sha256, sha256, actor, key_id, role, action, subject, purpose, basis,"
        " reference, outcome, reason FROM evidence_custody ORDER BY entry_no"
    ).fetchall()
    return [Entry(row[0], row[1], tuple(row[4:]), row[2], row[3]) for row in rows]


def test_what_sql_writes_is_what_python_hashes(store: Store) -> None:
    with store.api(store.north) as api:
        store.enter(api, Request("Jürgen, \"night\" 'shift'", "k1", "operator", "list"))
        store.enter(api, Request("a", "k", "insurer", "show", RECORD.hex(), "x" * 400, "owner_consent", "Nr. 5, ✔"))
        store.enter(api, Request("a", "k", "insurer", "list"))
    with store.may(store.north, "custody") as auditor:
        found = entries(auditor)
    assert [entry.fields[-2] for entry in found] == ["allowed", "allowed", "refused", "allowed"]
    assert chain_breaks(CUSTODY, store.north, found, found[-1]) == []
    forged = [
        found[0],
        Entry(2, found[1].at_ms, (*found[1].fields[:-1], "x"), found[1].previous_sha256, found[1].sha256),
    ]
    assert chain_breaks(CUSTODY, store.north, [*forged, *found[2:]], found[-1])


def test_many_readers_at_once_leave_one_unbroken_chain(store: Store) -> None:
    connections = [store.api(store.north) for _ in range(6)]

    def read_often(connection: Connection) -> list[int]:
        return [store.enter(connection, Request("me", "k", "admin", "list")) for _ in range(15)]

    with ThreadPoolExecutor(len(connections)) as pool:
        numbers = [number for found in pool.map(read_often, connections) for number in found]
    assert sorted(numbers) == list(range(1, 91))
    with store.may(store.north, "custody") as auditor:
        found = entries(auditor)
    assert len(found) == 91 and chain_breaks(CUSTODY, store.north, found, found[-1]) == []


def test_other_roles_have_no_right_on_any_table(store: Store) -> None:
    kinds = ("SELECT * FROM {}", "DELETE FROM {}", "UPDATE {} SET tenant_id = 1", "INSERT INTO {} DEFAULT VALUES")
    for role in (ROLE_READER, ROLE_SINK):
        connection = store.connect(role)
        connection.autocommit = True
        for table, statement in product(TABLES, kinds):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql.SQL(statement).format(sql.Identifier(table)))


def test_a_tenant_s_own_sql_login_has_no_right_on_any_table(store: Store, schema_dsn: str) -> None:
    with psycopg.connect(schema_dsn, autocommit=True) as owner:
        owner.execute(f"SET ROLE {ROLE_TENANT}")
        for table in (*TABLES, "evidence_notices", "edr_records", "edr_asides"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                owner.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
        for call in (
            "edr_custody_enter('', '', '', '', '', '', '', '', 'allowed', '')",
            "edr_position('')",
            "edr_linkage('', '')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                owner.execute(f"SELECT {call}".encode())


def test_the_reader_sees_that_a_record_is_held_and_nothing_of_what_it_says(store: Store) -> None:
    with store.connect(ROLE_READER) as reader:
        assert count(reader, "SELECT device, record_no, sha256 FROM edr_records") == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("SELECT trigger FROM evidence_records")


def test_the_reader_sees_why_bytes_were_refused_and_never_the_bytes(store: Store) -> None:
    with store.connect(ROLE_EVIDENCE) as consumer:
        for device, tenant in ((1, store.north), (None, None)):
            device_key = device and consumer.execute("SELECT min(device_key) FROM devices").fetchall()[0][0]
            consumer.execute(
                "INSERT INTO evidence_asides (tenant_id, device_key, reason, detail, bytes_sha256, bytes, topic_id,"
                " kafka_partition, kafka_offset)"
                " VALUES (%s, %s, 'bad_seal', 'why', %s, 'junk', gen_random_uuid(), 0, 1)",
                (tenant, device_key, bytes(32)),
            )
    with store.connect(ROLE_READER) as reader:
        told = reader.execute("SELECT device, tenant, reason, detail, sha256 FROM edr_asides ORDER BY aside_id")
        what = ("bad_seal", "why", "00" * 32)
        assert told.fetchall() == [("car-1", "north", *what), (None, None, *what)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("SELECT bytes FROM evidence_asides")
    for tenant in (store.north, store.south):
        with store.api(tenant) as api, pytest.raises(psycopg.errors.InsufficientPrivilege):
            api.execute("SELECT * FROM edr_asides")


def test_the_api_reads_nothing_without_a_committed_entry(store: Store) -> None:
    with store.api(store.north) as api:
        for table in ("records", "capsules", "elements", "custody", "log", "roots", "heads", "pieces", "attachments"):
            assert count(api, f"SELECT * FROM evidence_{table}") == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            api.execute("SELECT * FROM evidence_linkage")
        with api.transaction(force_rollback=True):
            number = store.enter(api, Request("me", "k", "admin", "show", RECORD.hex(), "p", "owner_consent", "1"))
            api.execute("SELECT set_config('fleetstream.custody_no', %s, true)", (str(number),))
            assert count(api, "SELECT * FROM evidence_elements") == 0
        for statement in (
            "INSERT INTO evidence_custody DEFAULT VALUES",
            "UPDATE evidence_custody SET outcome = 'allowed'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                api.execute(statement)


def test_an_entry_opens_just_what_it_names(store: Store) -> None:
    basis = {"purpose": "claim", "basis": "owner_consent", "reference": "12"}
    with store.may(store.north, "list") as api:
        assert count(api, "SELECT * FROM evidence_records") == 1
        assert count(api, "SELECT * FROM evidence_elements") == count(api, "SELECT * FROM evidence_capsules") == 0
    with store.may(store.north, "show", RECORD.hex(), **basis) as api:
        assert count(api, "SELECT * FROM evidence_elements") == 1
        assert count(api, "SELECT * FROM evidence_capsules") == 0
        assert count(api, "SELECT * FROM edr_linkage(%s, %s)", EVENT, RECORD.hex()) == 0
    with store.may(store.north, "show", "ff" * 32, **basis) as api:
        assert count(api, "SELECT * FROM evidence_elements") == count(api, "SELECT * FROM evidence_records") == 0
    with store.may(store.north, "export", RECORD.hex(), **basis) as api:
        assert count(api, "SELECT * FROM evidence_capsules") == 1
    with store.may(store.north, "position", EVENT) as api:
        assert count(api, "SELECT * FROM edr_position(%s)", EVENT) == 1
        assert count(api, "SELECT * FROM edr_linkage(%s, %s)", EVENT, RECORD.hex()) == 0
    with store.may(store.north, "linkage", RECORD.hex(), **basis) as api:
        assert api.execute("SELECT vin, driver FROM edr_linkage(%s, %s)", (EVENT, RECORD.hex())).fetchall() == [
            ("VIN", "driver")
        ]
    with store.may(store.south, "linkage", RECORD.hex(), **basis) as api:
        assert count(api, "SELECT * FROM edr_linkage(%s, %s)", EVENT, RECORD.hex()) == 0
        assert count(api, "SELECT * FROM evidence_records") == 0


def test_a_refused_entry_opens_nothing_and_an_old_one_neither(store: Store, schema_dsn: str) -> None:
    with store.may(store.north, "show", RECORD.hex()) as api:
        assert count(api, "SELECT * FROM evidence_records") == 0
    with store.may(store.north, "list") as api:
        assert count(api, "SELECT * FROM evidence_records") == 1
        with psycopg.connect(schema_dsn) as owner:
            owner.execute("ALTER TABLE evidence_custody DISABLE TRIGGER stays")
            owner.execute("UPDATE evidence_custody SET at_ms = at_ms - 61000")
        assert count(api, "SELECT * FROM evidence_records") == 0


BEYOND = [
    ("insurer", "show", RECORD.hex(), "", "", ""),
    ("insurer", "list", "", "p", "owner_consent", "1"),
    ("insurer", "show", RECORD.hex(), "p", "emergency", ""),
    ("operator", "show", "", "p", "owner_consent", "1"),
    ("operator", "export", RECORD.hex(), "", "owner_consent", "1"),
    ("operator", "export", RECORD.hex(), "p", "because", "1"),
    ("admin", "linkage", RECORD.hex(), "p", "research", "1"),
    ("maintenance", "position", EVENT, "", "", ""),
    ("admin", "delete", RECORD.hex(), "p", "owner_consent", "1"),
]


def test_the_store_itself_refuses_to_allow_more_than_the_rules(store: Store) -> None:
    api = store.api(store.north)
    for asked in BEYOND:
        values = ("me", "k", *asked, "allowed", "bribe")
        with pytest.raises(psycopg.errors.CheckViolation):
            api.execute("SELECT edr_custody_enter(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", values)


def test_nobody_changes_evidence_not_even_the_owner_by_accident(store: Store, schema_dsn: str) -> None:
    with store.api(store.north) as api:
        store.enter(api, Request("me", "k", "admin", "list"))
    consumer = store.connect(ROLE_EVIDENCE)
    consumer.autocommit = True
    with psycopg.connect(schema_dsn, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO evidence_log VALUES (%s, 1, 1, 'record', 'x', %s, %s, %s)", (store.north, *[bytes(32)] * 3)
        )
        for table in ("records", "capsules", "elements", "linkage", "log", "custody"):
            name = sql.Identifier(f"evidence_{table}")
            for statement in ("UPDATE {} SET tenant_id = tenant_id", "DELETE FROM {}", "TRUNCATE {} CASCADE"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="never changed"):
                    owner.execute(sql.SQL(statement).format(name))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                consumer.execute(sql.SQL("UPDATE {} SET tenant_id = tenant_id").format(name))


def test_the_store_refuses_bytes_that_are_not_the_record_s(store: Store) -> None:
    with store.connect(ROLE_EVIDENCE) as consumer, pytest.raises(psycopg.errors.CheckViolation):
        consumer.execute(
            "INSERT INTO evidence_capsules SELECT sha256, tenant_id, 'other' FROM evidence_records"
            " ON CONFLICT (record_sha256) DO NOTHING"
        )


def test_nobody_logs_in_as_the_linkage_s_role(store: Store) -> None:
    with pytest.raises(psycopg.OperationalError):
        store.connect(ROLE_LINKAGE)
    with store.api(store.north) as api, pytest.raises(psycopg.errors.InsufficientPrivilege):
        api.execute(f"SET ROLE {ROLE_LINKAGE}")
