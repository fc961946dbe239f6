"""The warden on a real PostgreSQL: one alert per cause, with its audit, message and labels, come what may."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import numpy as np
import psycopg
import pytest

from anomaly.deployed import DEPLOYED
from anomaly.excursions import TOLD
from api.queries.warden import WardenStore, Work
from api.warden import Warden
from contracts.alert import AlertState, StepKind
from contracts.finding import Severity
from contracts.tables import ROLE_API, ROLE_READER
from stream_jobs.sinks.findings import FindingStore
from tests.api.fix_alerts import Watchroom
from tests.api.fix_api import Fleet

MINUTE_MS = 60_000


@pytest.fixture
def room(fleet: Fleet) -> Watchroom:
    return Watchroom(fleet)


def move(room: Watchroom, state: str, resolution: str | None = None, at: str = "now()") -> None:
    """What a person does, as plainly as SQL allows it."""
    room.fleet.execute(
        f"UPDATE alert_rows SET state = %s, resolution = %s, resolved_at = {at}, event_no = event_no + 1,"
        " changed_by = 'key:k', change_kind = 'moved', escalate_at = NULL", state, resolution,
    )  # fmt: skip


def test_findings_of_one_cause_are_one_alert_with_its_message_and_audit(room: Watchroom) -> None:
    first = room.find()
    room.find(begun_s=60, deployment="coolant-residual")
    room.find(cause="battery")
    room.find("south-1")
    room.work()
    assert sorted(room.alerts()) == [("battery", "new", 1), ("cooling", "new", 1), ("cooling", "new", 2)]
    assert room.rows("SELECT count(*) FROM alert_due") == [(0,)]
    (step,) = [one for one in room.steps() if one.findings == 1 and one.device == "north-1" and one.cause == "cooling"]
    assert (step.kind, step.to_state, step.from_state) == (StepKind.OPENED, AlertState.NEW, None)
    assert (step.asset, step.severity, step.detector) == ("Car 1", Severity.WARNING, "coolant-own-past")
    assert step.since_ms == int(room.begun.timestamp() * 1000)
    held = room.rows("SELECT alert_id FROM alert_findings WHERE finding_id = %s", first)
    assert held == [(step.alert_id,)]
    room.find(closed_at=room.begun + timedelta(minutes=5), last_at=room.begun + timedelta(minutes=4))
    room.work()
    assert len(room.steps()) == 3, "longer and over is nothing that anybody has to hear of"
    events = room.rows("SELECT count(*), count(DISTINCT alert_id) FROM alert_events")
    assert events == [(3, 3)]


def test_what_the_stream_job_writes_becomes_an_alert_and_is_amended_by_late_data(room: Watchroom) -> None:
    """Both sides of the table as they are: detection's own writer, then the warden."""
    store, run_id = FindingStore(room.fleet.sink_dsn, DEPLOYED), uuid4()
    store.begin(run_id, "set")
    begun_ms = int(room.begun.timestamp() * 1000)

    def told(batch: int, **news: object) -> None:
        row = np.zeros(1, TOLD)
        values = {
            "device": room.fleet.devices["north-1"], "severity": 3, "readings": 5, "revision": batch, "score": 1.2,
            "started_ms": begun_ms, "at_ms": begun_ms + 5_000 * batch, "closed_ms": -1, "threshold": 1.0,
            "observed": 118.0, "low": -50.0, "high": 112.0, **news,
        }  # fmt: skip
        for name, value in values.items():
            row[name] = value
        assert store.write(run_id, batch, row, 100, 0).changed == 1
        room.work()

    told(1)
    told(2)
    told(3, closed_ms=begun_ms + 15_000)
    assert room.alerts("cause, detector, severity, running") == [("coolant", "car-coolant", 3, False)]
    told(4, closed_ms=begun_ms + 15_000, lost=True)
    assert [(one.kind, one.asset, one.revision) for one in room.steps()] == [
        ("opened", "Car 1", 0), ("amended", "Car 1", 1),
    ]  # fmt: skip


def test_an_alert_worsens_is_amended_and_is_retracted_when_its_ground_goes(room: Watchroom) -> None:
    name = room.find()
    room.work()
    room.find(severity=3, revision=2)
    room.work()
    room.find(severity=3, revision=3, readings_lost=True)
    room.work()
    room.fleet.execute("DELETE FROM finding_rows WHERE finding_id = %s", name)
    room.work()
    assert room.alerts("state, holding, revision, severity") == [("retracted", 0, 2, 3)]
    room.find(severity=3, revision=4)
    room.work()
    kinds = [one.kind for one in room.steps()]
    assert kinds == ["opened", "worsened", "amended", "retracted", "reopened"]
    assert [one.event_no for one in room.steps()] == [1, 2, 3, 4, 5]
    assert room.alerts("state, holding") == [("reopened", 1)]


def test_what_late_readings_contradict_is_taken_back_with_its_reason_and_people_keep_their_word(
    room: Watchroom,
) -> None:
    taken_back = "UPDATE finding_rows SET revision = revision + 1, retracted_at = now() WHERE finding_id = %s"
    reason = (
        "INSERT INTO finding_corrections (finding_id, revision, tenant_id, kind, reason) SELECT finding_id, revision,"
        " tenant_id, 'retracted', 'readings that came late contradict it' FROM finding_rows WHERE finding_id = %s"
    )
    first = room.find()
    judged = room.find(cause="battery")
    room.work()
    room.fleet.execute(
        "UPDATE alert_rows SET state = 'resolved', resolution = 'true', resolved_at = now(), event_no = event_no + 1,"
        " changed_by = 'key:k', change_kind = 'moved', escalate_at = NULL WHERE cause = 'battery'"
    )
    for name in (first, judged):
        room.fleet.execute(taken_back, name)
        room.fleet.execute(reason, name)
    room.work()
    stands = room.rows("SELECT cause, state, resolution, holding FROM alert_rows ORDER BY cause")
    assert stands == [("battery", "resolved", "true", 0), ("cooling", "retracted", None, 0)]
    notes = {(one.cause, one.kind): one.note for one in room.steps()}
    assert notes["cooling", StepKind.RETRACTED].endswith("readings that came late contradict it")
    assert notes["battery", StepKind.AMENDED].endswith("readings that came late contradict it")
    assert room.rows("SELECT finding_id, resolution FROM alert_labels") == [(judged, "true")]
    room.find()
    room.fleet.execute("UPDATE finding_rows SET retracted_at = NULL WHERE finding_id = %s", first)
    room.work()
    assert room.rows("SELECT state FROM alert_rows WHERE cause = 'cooling'") == [("reopened",)]


def test_hysteresis_after_people_have_judged(room: Watchroom) -> None:
    room.find()
    room.work()
    move(room, "resolved", "false")
    room.find(begun_s=3_600)
    room.work()
    assert room.alerts() == [("cooling", "resolved", 2)], "a person has answered that"
    assert room.rows("SELECT resolution FROM alert_labels") == [("false",)]
    room.find(begun_s=2 * 86_400)
    room.work()
    assert room.alerts() == [("cooling", "resolved", 2), ("cooling", "new", 1)]


def test_what_comes_back_after_a_repair_reopens_its_alert_and_takes_its_labels_back(room: Watchroom) -> None:
    room.find()
    room.work()
    move(room, "resolved", "true")
    assert room.rows("SELECT resolution FROM alert_labels") == [("true",)]
    room.find(begun_s=3_600)
    room.work()
    assert room.alerts("state, resolution, findings, escalate_at IS NULL") == [("reopened", None, 2, False)]
    assert room.rows("SELECT resolution FROM alert_labels") == []


def test_what_nobody_takes_notice_of_escalates_three_times_and_wakes_from_suppression(room: Watchroom) -> None:
    room.find(severity=3)
    room.work()
    for _ in range(6):
        room.ahead_ms += 61 * MINUTE_MS
        room.work()
    assert [one.kind for one in room.steps()] == ["opened", "escalated", "escalated", "escalated"]
    assert room.alerts("state, level") == [("new", 3)]
    room.fleet.execute(
        "UPDATE alert_rows SET state = 'suppressed', suppressed_until = %s, event_no = event_no + 1,"
        " changed_by = 'key:k', change_kind = 'moved', level = 0",
        datetime.fromtimestamp(room.now_ms / 1000, UTC) + timedelta(hours=1),
    )
    room.work()
    assert room.alerts("state") == [("suppressed",)]
    room.ahead_ms += 61 * MINUTE_MS
    room.work()
    assert room.alerts("state, level") == [("reopened", 0)]


def test_many_alerts_of_one_root_become_one_and_stand_alone_again_when_it_goes(room: Watchroom) -> None:
    root = room.find(cause="supply")
    for number, cause in enumerate(("fuel", "speed", "load", "throttle"), 1):
        room.find(cause=cause, begun_s=number)
    room.find(cause="brakes", begun_s=5, severity=4)
    room.work()
    grouped = dict(room.rows("SELECT cause, root_id IS NOT NULL FROM alert_rows"))
    assert grouped == {
        "supply": False, "fuel": True, "speed": True, "load": True, "throttle": True, "brakes": False,
    }, "nothing critical is hidden"  # fmt: skip
    room.ahead_ms += 25 * 3_600_000
    room.work()
    escalated = {one.cause for one in room.steps() if one.kind == "escalated"}
    assert escalated == {"supply", "brakes"}, "what is grouped disturbs nobody"
    room.fleet.execute("DELETE FROM finding_rows WHERE finding_id = %s", root)
    room.work()
    assert room.rows("SELECT count(*) FROM alert_rows WHERE root_id IS NOT NULL") == [(0,)]


def test_criticality_and_cost_raise_a_severity_and_without_an_asset_it_is_the_devices(room: Watchroom) -> None:
    room.fleet.insert("asset_care", {
        "asset_id": room.asset_id("north-1"), "tenant_id": room.fleet.tenants["north"], "criticality": 2,
        "downtime_cost_per_day": 5_000, "visit_cost": 100, "changed_by": "key:k",
    })  # fmt: skip
    room.find()
    room.find("north-2", asset_id=None)
    room.work()
    own = f"device:{room.fleet.devices['north-2']}:cooling"
    found = set(room.alerts("told_severity, severity, sureness, asset_id IS NULL AND subject = '" + own + "'"))
    assert found == {(2, 4, 0.5, False), (2, 2, 0.5, True)}


def test_killed_in_the_middle_of_a_batch_nothing_of_it_happened(
    room: Watchroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.find()
    room.find("north-2")

    class Killed(Exception):
        pass

    async def die(*_: object) -> None:
        raise Killed

    async def dying(warden: Warden) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Work, "taken", die)
            with pytest.raises(Killed):
                await warden.round()
        assert (room.alerts(), room.steps()) == ([], [])
        assert not await WardenStore(room.fleet.sink_dsn).open(), "one works at a time"
        await warden.round()

    room.work(dying)
    assert room.alerts() == [("cooling", "new", 1)] * 2
    assert len(room.steps()) == 2


def test_a_finding_that_the_store_refuses_holds_up_no_other(room: Watchroom) -> None:
    room.find(cause=secrets.token_hex(9_000))
    room.find("north-2")
    room.work()
    assert room.alerts() == [("cooling", "new", 1)]
    assert room.rows("SELECT count(*) FROM alert_due") == [(0,)]
    assert "fleetstream_api_findings_refused_total 1.0" in room.metrics.text().decode()


def test_nothing_changes_without_a_step_and_no_audit_is_changed(room: Watchroom) -> None:
    room.find()
    room.work()
    for statement in (
        "UPDATE alert_rows SET state = 'resolved', resolution = 'true'",
        "UPDATE alert_rows SET severity = 4",
        "UPDATE alert_rows SET event_no = event_no + 2",
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            room.fleet.execute(statement)
    for statement in ("UPDATE alert_events SET note = 'x'", "DELETE FROM alert_events"):
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.RestrictViolation)):
            room.fleet.execute(statement)
        with psycopg.connect(room.fleet.dsn) as owner, pytest.raises(psycopg.errors.RestrictViolation):
            owner.execute(statement.encode())


def test_precision_by_detector_and_month_with_its_interval(room: Watchroom) -> None:
    for number, resolution in enumerate(["true", "true", "true", "false", "unclear"]):
        room.find(begun_s=number, cause=f"c{number}")
        room.work()
        room.fleet.execute(
            "UPDATE alert_rows SET state = 'resolved', resolution = %s, resolved_at = now(), event_no = event_no + 1,"
            " change_kind = 'moved', root_id = NULL WHERE cause = %s", resolution, f"c{number}",
        )  # fmt: skip
    room.find("north-2")
    room.work()
    (row,) = room.rows(
        "SELECT tenant, detector, alerts, confirmed, wrong, unclear, unresolved, precision, low, high"
        " FROM alert_precision"
    )
    assert row[:7] == ("north", "coolant-own-past", 6, 3, 1, 1, 1)
    assert row[7:] == pytest.approx((0.75, 0.3006, 0.9544), abs=1e-4), "Wilson's interval of 3 out of 4"


def test_tenants_see_their_own_and_nobody_reads_a_secret(room: Watchroom, role_dsn: object) -> None:
    room.find()
    room.find("south-1")
    room.work()
    assert callable(role_dsn)
    with psycopg.connect(role_dsn(ROLE_API)) as api:
        assert api.execute("SELECT 1 FROM alerts").fetchall() == []
        api.execute("SELECT set_config('fleetstream.tenant_id', %s, true)", (str(room.fleet.tenants["south"]),))
        assert api.execute("SELECT asset FROM alerts").fetchall() == [("Turbine 1",)]
        assert api.execute("SELECT count(*) FROM alert_events").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            api.execute("SELECT secret FROM alert_channels")
    with psycopg.connect(role_dsn(ROLE_READER)) as reader:
        assert len(reader.execute("SELECT asset FROM alerts").fetchall()) == 2
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("SELECT target FROM alert_channels")
