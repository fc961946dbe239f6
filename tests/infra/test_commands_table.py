"""The table of commands keeps its own audit, and nobody changes an audit or a final command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from contracts.identity import decode_known
from contracts.tables import ROLE_API, ROLE_READER, ROLE_SINK, TENANT_SETTING
from infra.enrol import Enrolment, enrol
from tests.fix_cut import cut_at_commit

SUBMIT = (
    "SELECT said, found_id FROM submit_command(%s, %s, %s, 'ping', %s, %s, %s, 'key:k', now() + interval '1 h', %s)"
)
Connection = psycopg.Connection[Any]


@pytest.fixture
def sink(role_dsn: Callable[[str], str]) -> Iterator[Connection]:
    with psycopg.connect(role_dsn(ROLE_SINK), autocommit=True) as connection:
        enrol(connection, [Enrolment("car-1", "north", "Car", "car"), Enrolment("wt-1", "south", "Wt", "turbine")])
        yield connection


def submit(
    connection: Connection, name: str, device: str = "car-1", key: str | None = None, tenant: int | None = None,
    arguments: str = "{}", most_open: int = 3,
) -> tuple[str, str | None]:  # fmt: skip
    number = abs(hash(name)) % 2**40
    row = connection.execute(SUBMIT, (name, tenant, device, arguments, number, key, most_open)).fetchone()
    assert row is not None
    return row[0], row[1]


def test_a_request_is_accepted_once_per_key(sink: Connection) -> None:
    assert submit(sink, "c1", key="k1") == ("created", "c1")
    assert submit(sink, "c2", key="k1") == ("repeated", "c1")
    assert submit(sink, "c3", key="k1", arguments='{"n": 1}') == ("different", "c1")
    assert submit(sink, "c4", device="none") == ("no_such_device", None)
    assert submit(sink, "c5", tenant=-1) == ("no_such_device", None)


def test_open_commands_of_a_device_are_bounded(sink: Connection) -> None:
    assert [submit(sink, f"c{n}")[0] for n in range(4)] == ["created", "created", "created", "too_many"]
    assert submit(sink, "w1", device="wt-1")[0] == "created"
    sink.execute("UPDATE device_commands SET state = 'done', changed_by = 'device:car-1' WHERE command_id = 'c0'")
    assert submit(sink, "c9")[0] == "created"


def test_every_change_is_noted_and_stays(sink: Connection, schema_dsn: str) -> None:
    submit(sink, "c1")
    sink.execute("UPDATE device_commands SET state = 'sent', attempts = 1, changed_by = 'dispatcher'")
    sink.execute("UPDATE device_commands SET sent_at = now()")
    sink.execute("UPDATE device_commands SET state = 'done', changed_by = 'device:car-1'")
    rows = sink.execute(
        "SELECT change_no, changed_by, from_state, to_state, attempts FROM device_command_changes ORDER BY change_no"
    ).fetchall()
    assert rows == [
        (1, "key:k", None, "queued", 0), (2, "dispatcher", "queued", "sent", 1), (3, "device:car-1", "sent", "done", 1),
    ]  # fmt: skip
    with pytest.raises(psycopg.errors.CheckViolation):
        sink.execute("UPDATE device_commands SET state = 'refused', changed_by = 'x'")
    with psycopg.connect(schema_dsn, autocommit=True) as superuser:
        for statement in (
            "UPDATE device_command_changes SET reason = 'x'", "DELETE FROM device_command_changes",
            "TRUNCATE device_command_changes",
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.RestrictViolation):
                superuser.execute(statement.encode())


def test_tenants_see_and_ask_their_own(sink: Connection, role_dsn: Callable[[str], str]) -> None:
    submit(sink, "c1")
    submit(sink, "w1", device="wt-1")
    north = sink.execute("SELECT tenant_id FROM tenants WHERE name = 'north'").fetchone()
    assert north is not None
    with psycopg.connect(role_dsn(ROLE_API)) as api:
        assert api.execute("SELECT * FROM commands").fetchall() == []
        api.execute("SELECT set_config(%s, %s, true)", (TENANT_SETTING, str(north[0])))
        assert api.execute("SELECT device FROM commands").fetchall() == [("car-1",)]
        assert api.execute("SELECT to_state FROM device_command_changes").fetchall() == [("queued",)]
        assert submit(api, "c2", tenant=north[0]) == ("created", "c2")
        assert submit(api, "w2", device="wt-1", tenant=north[0]) == ("no_such_device", None)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            api.execute("UPDATE device_commands SET state = 'done'")
    with psycopg.connect(role_dsn(ROLE_READER)) as reader:
        assert len(reader.execute("SELECT * FROM commands").fetchall()) == 2


def test_a_new_epoch_is_told_with_its_nonce(sink: Connection) -> None:
    """Lowest and highest epochs, so that a device that begins at 1 again is known for what it is."""
    sink.execute("DELETE FROM outbox")
    for epoch in range(1, 41):
        sink.execute(
            "INSERT INTO seen_ranges (device_key, boot_epoch, nonce, tenant_id) SELECT device_key, %s, %s, tenant_id"
            " FROM devices WHERE device = 'car-1' ON CONFLICT DO NOTHING",
            (epoch, 1_000 + epoch),
        )
    told = sink.execute("SELECT topic, kafka_key, kafka_value FROM outbox ORDER BY outbox_id").fetchall()
    assert len(told) == 40
    assert {(topic, key) for topic, key, _ in told} == {("epochs", "car-1")}
    known = decode_known(told[-1][2])
    assert known.highest == 40
    assert sorted(known.nonces) == [*range(1, 9), *range(17, 41)]
    assert known.contradicts(1, 5)
    assert not known.contradicts(1, 1_001)
    assert not known.contradicts(12, 5)
    assert json.loads(told[0][2]) == {"v": 1, "highest": 1, "known": [[1, 1001]]}


def test_an_epoch_cut_at_its_commit_is_neither_stored_nor_told(
    sink: Connection, role_dsn: Callable[[str], str], schema: str, schema_dsn: str
) -> None:
    insert = (
        "INSERT INTO seen_ranges (device_key, boot_epoch, nonce, tenant_id)"
        " SELECT device_key, 7, 77, tenant_id FROM devices WHERE device = 'car-1'"
    )
    told = "SELECT count(*), (SELECT count(*) FROM outbox WHERE topic = 'epochs') FROM seen_ranges"
    with cut_at_commit(schema_dsn, schema), pytest.raises(psycopg.OperationalError):
        psycopg.connect(role_dsn(ROLE_SINK), autocommit=True).execute(insert)
    assert sink.execute(told).fetchone() == (0, 0)
    sink.execute(insert)
    assert sink.execute(told).fetchone() == (1, 1)


def test_two_transactions_with_new_epochs_tell_both(sink: Connection, role_dsn: Callable[[str], str]) -> None:
    """The compacted topic keeps the last message of a device: it must hold what the other transaction stored."""
    sink.execute("DELETE FROM outbox")
    insert = (
        "INSERT INTO seen_ranges (device_key, boot_epoch, nonce, tenant_id) SELECT device_key, %s, %s, tenant_id"
        " FROM devices WHERE device = %s"
    )
    waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND NOT granted)"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(role_dsn(ROLE_SINK)) as first:
        first.execute(insert, (40, 1_040, "car-1"))
        with psycopg.connect(role_dsn(ROLE_SINK), autocommit=True) as second:
            sink.execute(insert, (1, 1_001, "wt-1"))
            pid = second.info.backend_pid
            told = pool.submit(second.execute, insert, (41, 1_041, "car-1"))
            while not told.done() and sink.execute(waits, (pid,)).fetchone() != (True,):
                pass
            first.commit()
            told.result(180)
    messages = sink.execute("SELECT kafka_value FROM outbox WHERE kafka_key = 'car-1' ORDER BY outbox_id").fetchall()
    assert decode_known(messages[-1][0]).nonces == {40: 1_040, 41: 1_041}
