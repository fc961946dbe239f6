"""Crash records over HTTP: every route for every role, with and without a legal basis; every read is logged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from api.keys import ROLES
from contracts.edr.custody import OVERVIEW_ACTIONS
from contracts.edr.ledger import CUSTODY, Entry, chain_breaks
from contracts.edr.verify import verify_export
from contracts.edr.wire import CapsuleParcel
from contracts.edr.x509 import X509Checks
from edge_agent.recorder.signing import load_signer
from infra.ca import DevelopmentCa
from stream_jobs.sinks.connection import drop_all
from tests.api.fix_api import Fleet, Server, api_settings, running
from tests.api.test_stream import events
from tests.stream_jobs.evidence_kit import NOW_MS, Desk, Recorder, make_desk, root_of, signer

BASIS = {"Legal-Basis": "owner_consent", "Purpose": "claim 4711", "Legal-Reference": "consent 12"}
OVERVIEWS = {"notices": "notices", "records": "list", "custody": "custody", "notices/{event}/position": "position"}
RECORD_ROUTES = {"": "show", "/report": "report", "/export": "export", "/linkage": "linkage"}


@dataclass
class Crashed:
    """A fleet with one crash of north-1 in the store, as the consumer wrote it."""

    fleet: Fleet
    desk: Desk
    recorder: Recorder
    parcel: CapsuleParcel
    server: Server

    @property
    def record(self) -> str:
        return str(self.desk.rows("SELECT encode(sha256, 'hex') FROM evidence_records")[0][0])

    def client(self, role: str, tenant: str = "north", **headers: str) -> httpx.Client:
        client = self.server.client(self.fleet.key(tenant, role))
        client.headers.update(headers)
        return client

    def addresses(self) -> dict[str, str]:
        """Address to action, of everything that reads evidence."""
        base = "/api/v1/edr/"
        overviews = {base + path.replace("{event}", self.parcel.event_id): action for path, action in OVERVIEWS.items()}
        return overviews | {f"{base}records/{self.record}{path}": action for path, action in RECORD_ROUTES.items()}

    def custody(self) -> list[dict[str, Any]]:
        names = ("entry_no", "key_id", "role", "action", "subject", "basis", "outcome", "reason")
        rows = self.desk.rows(f"SELECT {', '.join(names)} FROM evidence_custody ORDER BY entry_no")
        return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.fixture
def crashed(fleet: Fleet, role_dsn: Callable[[str], str], schema_dsn: str, tmp_path: Path) -> Iterator[Crashed]:
    authority = DevelopmentCa(tmp_path / "ca", datetime.fromtimestamp(NOW_MS / 1_000, UTC))
    files, export = authority.signer("north-1"), authority.signer("export")
    key = load_signer(files.key.read_bytes(), files.certificate.read_bytes())
    desk = make_desk(role_dsn, schema_dsn, frozenset({root_of(key)}))
    recorder = Recorder("north-1", "north", fleet.devices["north-1"], fleet.tenants["north"], key, bytes(range(16)))
    parcel = recorder.capsule(source="aftermarket_device")
    with running(api_settings(fleet, edr_key=export.key, edr_chain=export.certificate)) as server:
        made = Crashed(fleet, desk, recorder, parcel, server)
        outcome = made.desk.store.take("priority", stamped_now(made), NOW_MS)
        assert dict(outcome.counts) == {"stored": 3}, dict(outcome.reasons)
        yield made
    drop_all()


def stamped_now(made: Crashed) -> list[Any]:
    """The crash's parcels, received while the development authority's certificates are valid."""
    messages = (
        made.recorder.notice(made.parcel.event_id), made.recorder.linkage(made.parcel.event_id), made.parcel
    )  # fmt: skip
    return made.desk.append(made.recorder, *(made.recorder.parcel(message) for message in messages))


@pytest.mark.parametrize("basis", [{}, BASIS], ids=["without a basis", "with a basis"])
def test_every_route_for_every_role_is_logged_whatever_the_answer(crashed: Crashed, basis: dict[str, str]) -> None:
    expected = []
    for role, (address, action) in product(ROLES, crashed.addresses().items()):
        with crashed.client(role, **basis) as client:
            answer = client.get(address)
        by_role = action in OVERVIEW_ACTIONS and role in OVERVIEW_ACTIONS[action]
        by_basis = action not in OVERVIEW_ACTIONS and bool(basis) and role in ("operator", "insurer", "admin")
        assert answer.status_code == (200 if by_role or by_basis else 403), (role, address, answer.text)
        if answer.status_code == 403:
            assert answer.json()["code"] in ("role", "no_legal_basis")
            assert "41.0" not in answer.text and "WVW" not in answer.text and "delta_v" not in answer.text
        expected.append((role, action, "allowed" if by_role or by_basis else "refused"))
    log = crashed.custody()
    assert [(one["role"], one["action"], one["outcome"]) for one in log] == expected
    assert not [one for one in log if one["role"] == "insurer" and one["outcome"] == "allowed" and not one["basis"]]


def test_the_custody_log_s_chain_verifies_and_tampering_is_named(crashed: Crashed) -> None:
    with crashed.client("admin", **BASIS) as admin, crashed.client("insurer") as insurer:
        for address in crashed.addresses():
            admin.get(address)
            insurer.get(address)
    query = (
        "SELECT entry_no, at_ms, previous_sha256, sha256, actor, key_id, role, action, subject, purpose, basis,"
        " reference, outcome, reason FROM evidence_custody ORDER BY entry_no"
    )
    found = [Entry(row[0], row[1], tuple(row[4:]), row[2], row[3]) for row in crashed.desk.rows(query)]
    tenant_id = crashed.recorder.tenant_id
    assert len(found) == 16 and chain_breaks(CUSTODY, tenant_id, found, found[-1]) == []
    for at, entry in enumerate(found):
        other = replace(
            entry, fields=(*entry.fields[:8], "allowed" if entry.fields[8] == "refused" else "refused", "x")
        )
        breaks = chain_breaks(CUSTODY, tenant_id, [*found[:at], other, *found[at + 1 :]], found[-1])
        assert [one.place for one in breaks] == [f"custody entry {entry.entry_no}"]


def test_a_record_decoded_with_units_accuracy_and_nothing_made_up(crashed: Crashed) -> None:
    with crashed.client("operator", **BASIS, **{"On-Behalf-Of": "J%C3%BCrgen"}) as client:
        body = client.get(f"/api/v1/edr/records/{crashed.record}").json()
    elements = {one["name"]: one for one in body["elements"]}
    speed, delta_v = elements["speed"], elements["delta_v_longitudinal"]
    assert speed["values"] == [41.0] * 10 + [None] and speed["unit"] == "km/h"
    assert (speed["first_ms"], speed["step_ms"]) == (-5_000.0, 500.0) and speed["accuracy"]["kind"] == "absolute"
    assert delta_v["saturated_from_ms"] == 40
    absent = [one for one in body["elements"] if one["status"] == "not_available"]
    assert absent and all(one["values"] is None for one in absent)
    assert body["summary"]["trust"] == "root" and body["summary"]["chain"] == "first"
    assert "not the download of a regulated recorder" in body["notice"] and body["custody_entry"] == 1
    assert "WVW" not in str(body)
    assert crashed.desk.rows("SELECT actor FROM evidence_custody") == [("Jürgen",)]


def test_the_export_verifies_offline_and_is_the_original(crashed: Crashed) -> None:
    with crashed.client("operator", **BASIS) as client:
        answer = client.get(f"/api/v1/edr/records/{crashed.record}/export")
    assert answer.headers["content-type"] == "application/octet-stream" and answer.headers["custody-entry"] == "1"
    root = {root_of(crashed.recorder.key)}
    verdict = verify_export(answer.content, X509Checks(), NOW_MS, root)
    assert verdict.holds and crashed.parcel.capsule in answer.content
    flipped = bytearray(answer.content)
    flipped[len(flipped) // 2] ^= 1
    assert not verify_export(bytes(flipped), X509Checks(), NOW_MS, root).holds


def test_the_export_of_a_recorder_under_another_root_verifies_too(crashed: Crashed) -> None:
    """Evidence of a simulated device with a throw-away key, and of a device under another root that we trust."""
    crashed.fleet.execute("UPDATE devices SET kind = 'simulated' WHERE device = 'north-1'")
    other = replace(crashed.recorder, key=signer(b"throw-away"), recorder_id=bytes(16), record_no=0, previous=bytes(32))
    parcel = other.capsule()
    assert dict(crashed.desk.take(other, parcel).counts) == {"stored": 1}
    with crashed.client("operator", **BASIS) as client:
        data = client.get(f"/api/v1/edr/records/{hashlib.sha256(parcel.capsule).hexdigest()}/export").content
    found = verify_export(data, X509Checks(), NOW_MS)
    assert found.holds and found.root_sha256 != root_of(other.key)
    assert verify_export(data, X509Checks(), NOW_MS, {found.root_sha256, root_of(other.key)}).holds
    for trusted, place in ((found.root_sha256, "capsule 1"), (root_of(other.key), "manifest")):
        (fault,) = verify_export(data, X509Checks(), NOW_MS, {trusted}).faults
        assert fault.place.startswith(place)


def test_where_to_look_by_role_and_who_by_basis(crashed: Crashed) -> None:
    event = crashed.parcel.event_id
    with crashed.client("operator") as client:
        place = client.get(f"/api/v1/edr/notices/{event}/position").json()
        assert (place["latitude"], place["longitude"], place["position_age_ms"]) == (49.0117, 8.4, 400)
        assert "vin" not in place and "driver" not in place
        (notice,) = client.get("/api/v1/edr/notices").json()["items"]
        assert notice["asset"] == "Car 1" and notice["speed_kmh"] == 52.3
    with crashed.client("insurer", **BASIS) as client:
        who = client.get(f"/api/v1/edr/records/{crashed.record}/linkage").json()
        assert (who["vin"], who["driver"]) == ("WVWZZZ1KZ00000000", "d-17")
    for basis in ("research", "investigation"):
        with crashed.client("admin", **{**BASIS, "Legal-Basis": basis}) as client:
            refused = client.get(f"/api/v1/edr/records/{crashed.record}/linkage")
            assert refused.status_code == 403 and refused.json()["code"] == "basis_names_nobody"


def test_research_identifies_nobody(crashed: Crashed) -> None:
    address = f"/api/v1/edr/records/{crashed.record}"
    with crashed.client("insurer", **{**BASIS, "Legal-Basis": "research"}) as client:
        for path in ("", "/report"):
            body = client.get(address + path)
            told = body.json()["summary"]
            assert [told[name] for name in ("device", "asset", "received_at", "stored_at")] == [None] * 4
            assert "north-1" not in body.text and "Car 1" not in body.text and body.json()["elements"]
        export = client.get(f"{address}/export")
        assert export.headers["content-disposition"] == f'attachment; filename="{crashed.record[:16]}-1.fsx"'
        assert b"north-1" not in export.content and verify_export(export.content, X509Checks(), NOW_MS).holds
    with crashed.client("insurer", **BASIS) as client:
        told = client.get(address).json()["summary"]
        assert (told["device"], told["asset"]) == ("north-1", "Car 1") and told["received_at"] and told["stored_at"]


def test_another_tenant_learns_nothing_and_its_attempts_stay_in_its_own_log(crashed: Crashed) -> None:
    with crashed.client("admin", "south", **BASIS) as client:
        for address, action in crashed.addresses().items():
            answer = client.get(address)
            if action in ("notices", "list"):
                assert answer.json()["items"] == []
            elif action != "custody":
                assert answer.status_code == 404
    tenants = {tenant for (tenant,) in crashed.desk.rows("SELECT DISTINCT tenant_id FROM evidence_custody")}
    assert tenants == {crashed.fleet.tenants["south"]}


def test_a_request_that_cannot_be_read_is_logged_as_refused(crashed: Crashed) -> None:
    """A probing insurer leaves a trace also when what it sends is no question."""
    bad = [
        (f"records/{crashed.record.upper()}", "show", crashed.record.upper()),
        ("records/'; DROP/report", "report", "'; DROP"), ("records/x/export", "export", "x"),
        ("records/%00x/linkage", "linkage", "?x"),
        (f"records/{crashed.record}/attachments/x", "export", crashed.record),
        ("records?limit=5000", "list", ""), ("notices?limit=none", "notices", ""), ("custody?limit=0", "custody", ""),
        ("notices/nothing/position", "position", "nothing"), ("records?device=" + "x" * 65, "list", ""),
    ]  # fmt: skip
    with crashed.client("insurer", Purpose="probing") as client:
        for address, _, _ in bad:
            assert client.get(f"/api/v1/edr/{address}").status_code == 422, address
    log = crashed.custody()
    assert [(one["action"], one["subject"]) for one in log] == [(action, subject) for _, action, subject in bad]
    assert {(one["role"], one["outcome"], one["reason"]) for one in log} == {
        ("insurer", "refused", "unreadable_request")
    }  # fmt: skip
    assert crashed.desk.rows("SELECT DISTINCT purpose FROM evidence_custody") == [("probing",)]
    stranger = crashed.server.client("nobody's key")
    with stranger:
        assert stranger.get(f"/api/v1/edr/records/{crashed.record.upper()}").status_code == 401
    assert len(crashed.custody()) == len(log)


def test_without_a_log_there_is_no_reading(crashed: Crashed, schema_dsn: str) -> None:
    with psycopg.connect(schema_dsn, autocommit=True) as owner:
        owner.execute("ALTER TABLE evidence_custody ADD CONSTRAINT broken CHECK (false) NOT VALID")
        with crashed.client("admin", **BASIS) as client:
            assert client.get(f"/api/v1/edr/records/{crashed.record}").status_code == 500


def test_a_notice_reaches_the_live_stream_at_once_and_only_its_tenant(crashed: Crashed) -> None:
    with (
        crashed.client("operator") as mine, crashed.client("operator", "south") as theirs,
        mine.stream("GET", "/api/v1/stream") as ours, theirs.stream("GET", "/api/v1/stream") as other,
    ):  # fmt: skip
        heard, foreign = events(ours), events(other)
        assert next(heard).name == next(foreign).name == "hello"
        second = crashed.recorder.capsule(source="aftermarket_device")
        crashed.desk.take(crashed.recorder, crashed.recorder.notice(second.event_id))
        event = next(heard)
        read = [(one["role"], one["action"], one["outcome"]) for one in crashed.custody()]
        assert read == [("operator", "notices", "allowed")], "logged before it is told, and only to whom it is told"
        assert event.name == "notice" and event.data["notice"]["event_id"] == second.event_id
        assert event.data["notice"]["asset"] == "Car 1" and "latitude" not in str(event.data)
        crashed.fleet.latest("south-1", 1, datetime.now(UTC), 7.0)
        assert next(foreign).name == "values"
