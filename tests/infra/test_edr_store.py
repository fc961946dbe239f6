"""``fleetstream edr`` on a store: everything through the custody log, and whatever is tampered with is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

from contracts.edr.raw import RAW_MOTION, RawMotion, encode_raw
from contracts.edr.record import Attachment
from contracts.edr.wire import pieces_of
from contracts.tables import ROLE_EVIDENCE
from infra.ca import DevelopmentCa
from infra.cli import edr_store
from infra.cli.edr import app
from infra.custody_check import Examined, examine
from infra.errors import SetupError
from stream_jobs.evidence.roots import RootMaker
from tests.api.fix_api import fleet
from tests.api.test_edr import BASIS, Crashed, crashed
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
    assert "ignition cycle at download: not known, since" in call("verify", str(file)).stdout
    missing = call("show", "00" * 32, "--tenant", "north", *WHY)
    assert isinstance(missing.exception, SetupError)
    log = json.loads(call("custody", "list", "--tenant", "north", "--json").stdout)
    assert [(one["action"], one["outcome"]) for one in reversed(log)] == [
        ("list", "allowed"), ("list", "allowed"), ("show", "refused"), ("show", "allowed"), ("export", "allowed"),
        ("show", "allowed"), ("custody", "allowed"),
    ]  # fmt: skip
    holds = call("custody", "verify")
    assert holds.exit_code == 0 and "north: 3 evidence and 7 custody entries, 0 daily roots: holds" in holds.stdout


def test_what_was_refused_is_listed_with_its_reason(crashed: Crashed, call: Callable[..., Any]) -> None:
    assert call("asides").stdout == ""
    crashed.desk.store.take("priority", crashed.desk.append(crashed.recorder, b"junk"), NOW_MS)
    (one,) = json.loads(call("asides", "--json").stdout)
    assert one["device"] == "north-1" and one["tenant"] == "north"
    assert one["sha256"] == crashed.desk.rows("SELECT encode(bytes_sha256, 'hex') FROM evidence_asides")[0][0]
    assert f"north-1  {one['reason']}: " in call("asides", "--tenant", "north").stdout
    assert call("asides", "--tenant", "south", "--json").stdout == "[]\n"


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


def test_raw_data_come_out_with_the_export_checked_against_the_claim(
    crashed: Crashed, call: Callable[..., Any], tmp_path: Path
) -> None:
    raw = encode_raw(RawMotion((0, 500), (-1_000, 2), (3, 4), (5, 6), b"\x01\x00"))
    claim = Attachment(RAW_MOTION, hashlib.sha256(raw).digest(), len(raw))
    parcel = crashed.recorder.capsule((claim,), source="aftermarket_device")
    pieces = pieces_of(parcel.event_id, parcel.record_no, RAW_MOTION, raw)
    assert dict(crashed.desk.take(crashed.recorder, parcel, *pieces).counts) == {"stored": 2}
    record, file = hashlib.sha256(parcel.capsule).hexdigest(), tmp_path / "raw.fsx"
    told = json.loads(call("export", record, "--tenant", "north", "--out", str(file), "--json", *WHY).stdout)
    assert told["attachments"] == 1
    out = call("verify", str(file), "--raw-to", str(tmp_path / "raw"), "--json")
    assert out.exit_code == 0
    (one,) = json.loads(out.stdout)["attachments"]
    assert (one["record_no"], one["name"], one["sha256"]) == (2, RAW_MOTION, claim.sha256.hex())
    (table,) = (tmp_path / "raw").iterdir()
    assert table.read_text() == "after_us,x_mm_s2,y_mm_s2,z_mm_s2,limits\n0,-1000,3,5,1\n500,2,4,6,0\n"
    address = f"/api/v1/edr/records/{record}/attachments/"
    with crashed.client("operator", **BASIS) as client, crashed.client("operator") as bare:
        assert client.get(address + claim.sha256.hex()).content == raw
        assert client.get(address + "00" * 32).status_code == 404
        assert client.get(f"/api/v1/edr/records/{crashed.record}/attachments/{claim.sha256.hex()}").status_code == 404
        assert bare.get(address + claim.sha256.hex()).status_code == 403
        assert raw in client.get(f"/api/v1/edr/records/{record}/export").content
    outcomes = [(one["action"], one["outcome"]) for one in crashed.custody()]
    assert outcomes == [*[("export", "allowed")] * 4, ("export", "refused"), ("export", "allowed")]
    broken = bytearray(file.read_bytes())
    broken[-20] ^= 1
    file.write_bytes(broken)
    bad = call("verify", str(file), "--raw-to", str(tmp_path / "none"))
    assert bad.exit_code == 1 and "attachment 1" in bad.stderr and not (tmp_path / "none").exists()
