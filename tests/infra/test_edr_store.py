"""``fleetstream edr`` on a store: everything through the custody log, and whatever is tampered with is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

from contracts.tables import ROLE_EVIDENCE
from infra.ca import DevelopmentCa
from infra.cli import edr_store
from infra.cli.edr import app
from infra.custody_check import Examined, examine
from infra.errors import SetupError
from stream_jobs.evidence.roots import RootMaker
from tests.api.fix_api import fleet
from tests.api.test_edr import Crashed, crashed
from tests.stream_jobs.evidence_kit import NOW_MS

__all__ = ["crashed", "fleet"]

DAY_MS = 86_400_000
WHY = ["--basis", "owner_consent", "--reference", "consent 12", "--purpose", "claim 4711"]
TAMPERING: dict[str, tuple[LiteralString, str]] = {
    "evidence_capsules": ("UPDATE {} SET capsule = 'x'", "original bytes"),
    "evidence_records": ("UPDATE {} SET locked = NOT locked", "record of evidence entry 3"),
    "evidence_elements": ("UPDATE {} SET steps = '{{99}}' WHERE name = 'speed'", "record of evidence entry 3"),
    "evidence_notices": ("UPDATE {} SET notice = notice || '{{\"speed_dkmh\": 1}}'", "notice of evidence entry 1"),
    "evidence_linkage": ("UPDATE {} SET driver = 'somebody else'", "linkage of evidence entry 2"),
    "evidence_asides": ("UPDATE {} SET reason = 'nothing'", "aside of evidence entry 5"),
    "evidence_log": ("DELETE FROM {} WHERE entry_no = 2", "evidence entry 3: entries 2 to 2 are missing"),
    "evidence_custody": ("UPDATE {} SET outcome = 'refused' WHERE entry_no = 1", "custody entry 1: what it says"),
    "evidence_roots": ("UPDATE {} SET first_no = 2", "are not those that it was made from"),
}


@dataclass
class Fake:
    """As much of a stack as the commands ask for."""

    dsn: Callable[[str], str]
    authority: DevelopmentCa


@pytest.fixture
def call(
    crashed: Crashed, role_dsn: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    stack = Fake(role_dsn, DevelopmentCa(tmp_path / "ca"))
    monkeypatch.setattr(edr_store, "_stack", lambda: stack)
    return lambda *arguments: CliRunner().invoke(app, [*arguments], catch_exceptions=True)


def test_list_show_export_verify_and_the_custody_of_all_that(
    crashed: Crashed, call: Callable[..., Any], tmp_path: Path
) -> None:
    (listed,) = json.loads(call("list", "--tenant", "north", "--json").stdout)
    record = listed["record"]
    assert record == crashed.record and "north-1 record 1" in call("list", "--tenant", "north").stdout
    refused = call("show", record, "--tenant", "north")
    assert isinstance(refused.exception, SetupError) and "no_legal_basis" in str(refused.exception)
    shown = call("show", record, "--tenant", "north", *WHY).stdout
    assert "Speed, vehicle indicated: 10 of 11 samples, 41.0 … 41.0 km/h (accuracy 1 absolute)" in shown
    assert "not available" in shown and "WVW" not in shown
    file = tmp_path / "one.fsx"
    assert call("export", record, "--tenant", "north", "--out", str(file), *WHY).exit_code == 0
    assert json.loads(call("verify", str(file), "--json").stdout)["holds"] is True
    missing = call("show", "00" * 32, "--tenant", "north", *WHY)
    assert isinstance(missing.exception, SetupError)
    log = json.loads(call("custody", "list", "--tenant", "north", "--json").stdout)
    assert [(one["action"], one["outcome"]) for one in reversed(log)] == [
        ("list", "allowed"), ("list", "allowed"), ("show", "refused"), ("show", "allowed"), ("export", "allowed"),
        ("show", "allowed"), ("custody", "allowed"),
    ]  # fmt: skip
    holds = call("custody", "verify")
    assert holds.exit_code == 0 and "north: 3 evidence and 7 custody entries, 0 daily roots: holds" in holds.stdout


def test_whatever_is_tampered_with_is_named(
    crashed: Crashed, call: Callable[..., Any], role_dsn: Callable[[str], str], schema_dsn: str
) -> None:
    crashed.desk.take(crashed.recorder, crashed.recorder.notice("ab" * 16 + "-1-1"))
    crashed.desk.store.take("priority", crashed.desk.append(crashed.recorder, b"junk"), NOW_MS)
    call("list", "--tenant", "north")
    now_ms = int(crashed.desk.rows("SELECT max(at_ms) FROM evidence_custody")[0][0])
    assert RootMaker(role_dsn(ROLE_EVIDENCE)).end_days(now_ms + 2 * DAY_MS) == 2
    assert RootMaker(role_dsn(ROLE_EVIDENCE)).end_days(now_ms + 2 * DAY_MS) == 0
    days = crashed.desk.rows("SELECT kafka_value FROM outbox WHERE topic = 'events' AND kafka_key = 'north'")
    assert [json.loads(bytes(value))["kind"] for (value,) in days] == ["evidence_day"] * 2
    assert found(role_dsn).breaks == () and found(role_dsn).roots == 2
    with psycopg.connect(schema_dsn, autocommit=True) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute("ALTER TABLE evidence_capsules DROP CONSTRAINT original_bytes")
        for table, (change, named) in TAMPERING.items():
            name = sql.Identifier(table)
            owner.execute(sql.SQL("CREATE TEMP TABLE kept AS SELECT * FROM {}").format(name))
            owner.execute(sql.SQL(change).format(name))
            assert any(named in str(one) for one in found(role_dsn).breaks), (table, found(role_dsn).breaks)
            owner.execute(sql.SQL("DELETE FROM {}").format(name))
            owner.execute(sql.SQL("INSERT INTO {} OVERRIDING SYSTEM VALUE SELECT * FROM kept").format(name))
            owner.execute("DROP TABLE kept")
            assert found(role_dsn).breaks == ()
        owner.execute("DELETE FROM evidence_log WHERE entry_no = 1")
    result = call("custody", "verify")
    assert result.exit_code == 1 and "BROKEN north: evidence entry 2" in result.stderr


def found(role_dsn: Callable[[str], str]) -> Examined:
    (examined,) = examine(role_dsn(ROLE_EVIDENCE), "north")
    return examined
