"""Findings and alerts over HTTP: seen by their tenant, explained, moved, resolved, counted, exported."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from psycopg.types.json import Jsonb

from tests.api.fix_alerts import COOLANT, Watchroom
from tests.api.fix_api import Fleet, Server

V1 = "/api/v1"


@pytest.fixture
def room(fleet: Fleet) -> Watchroom:
    return Watchroom(fleet)


@pytest.fixture
def client(room: Watchroom, server: Server) -> Iterator[httpx.Client]:
    with server.client(room.fleet.key("north", "maintenance")) as made:
        yield made


def get(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(f"{V1}{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def move(client: httpx.Client, alert_id: str, **body: Any) -> httpx.Response:
    return client.post(f"{V1}/alerts/{alert_id}/transitions", json=body)


def test_a_technician_works_an_alert_to_its_end(room: Watchroom, client: httpx.Client, server: Server) -> None:
    room.find()
    room.work()
    alert_id = room.alert()
    (listed,) = get(client, "/alerts", open="true")["items"]
    assert (listed["alert_id"], listed["asset"], listed["state"]) == (alert_id, "Car 1", "new")
    whole = get(client, f"/alerts/{alert_id}")
    assert whole["moves"] == ["acknowledged", "assigned", "in_progress", "resolved", "suppressed"]
    assert move(client, alert_id, to_state="acknowledged", event_no=1).status_code == 200
    again = move(client, alert_id, to_state="acknowledged").json()
    assert again["alert"]["event_no"] == 2, "a request that is repeated changes nothing"
    late = move(client, alert_id, to_state="suppressed", event_no=1)
    assert (late.status_code, late.json()["code"]) == (409, "changed_meanwhile")
    assert move(client, alert_id, to_state="assigned").json()["code"] == "bad_move"
    assert move(client, alert_id, to_state="assigned", assignee="Ada").status_code == 200
    done = move(client, alert_id, to_state="resolved", resolution="false", note="wet plug", actor="Ada").json()
    assert done["alert"]["resolution"] == "false" and done["moves"] == ["reopened"]
    assert [one["to_state"] for one in done["events"]] == ["new", "acknowledged", "assigned", "resolved"]
    assert done["events"][-1]["note"] == "wet plug" and done["events"][-1]["by_whom"].endswith("/Ada")
    refused = move(client, alert_id, to_state="in_progress")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_allowed")
    (month,) = get(client, "/alerts/precision")["items"]
    assert (month["detector"], month["wrong"], month["precision"]) == ("coolant-own-past", 1, 0.0)
    assert get(client, "/alerts", open="true")["items"] == []
    assert [one.kind for one in room.steps()] == ["opened", "moved", "moved", "moved"], "each with its message"
    with server.client(room.fleet.key("south")) as stranger:
        assert stranger.get(f"{V1}/alerts").json()["items"] == []
        assert move(stranger, alert_id, to_state="reopened").status_code == 404
    with server.client(room.fleet.key("north", "auditor")) as auditor:
        assert get(auditor, f"/alerts/{alert_id}")["alert"]["state"] == "resolved"
        assert move(auditor, alert_id, to_state="reopened").status_code == 403
    with server.client(room.fleet.key("north", "insurer")) as insurer:
        assert insurer.get(f"{V1}/alerts").status_code == 403


def test_a_finding_explains_itself(room: Watchroom, client: httpx.Client) -> None:
    name = room.find(last_at=room.begun + timedelta(seconds=60))
    for device, units in (("north-1", (1170, 1185)), ("north-2", (880, 890))):
        for minute in (-60, 0, 10):
            at = room.begun + timedelta(minutes=minute, seconds=10)
            room.fleet.window(device, COOLANT.number, at, units)
    room.work()
    told = get(client, f"/findings/{name}")
    finding, around = told["finding"], told["around"]
    assert (finding["observed"], finding["expected_low"], finding["alert"]) == (118.5, 84.0, room.alert())
    assert around["expected"] == {"low": 84.0, "high": 96.0} and around["width_s"] == 10
    assert [point["max"] for point in around["points"]] == [118.5, 118.5], "an hour before is too far"
    assert told["contributions"] == [{"signal": COOLANT.path, "unit": COOLANT.unit, "share": 1.0}]
    assert told["believed"] == {
        "detector": "coolant-own-past", "confirmed": 0, "wrong": 0, "unclear": 0, "precision": None, "sureness": 0.5,
    }  # fmt: skip
    assert told["peers"] == {"assets": 1, "low": 88.5, "median": 88.5, "high": 88.5}
    move(client, room.alert(), to_state="resolved", resolution="true", note="pump replaced")
    other = room.find("north-2")
    room.work()
    told = get(client, f"/findings/{other}")
    assert told["believed"]["precision"] == 1.0
    (case,) = told["similar"]
    assert (case["asset"], case["resolution"], case["note"]) == ("Car 1", "true", "pump replaced")
    assert case["distance"] == 0.0, "the same signal carried it"
    assert told["also"] == told["corrections"] == []
    several = [COOLANT.number, 25]
    third = room.find(
        "north-2", begun_s=-600, signals=several, contributions=Jsonb([[several[0], 0.5], [several[1], 0.5]])
    )
    told = get(client, f"/findings/{third}")
    assert [one["signal"] for one in told["also"]] == ["Vehicle.Powertrain.CombustionEngine.TPS"]
    assert told["also"][0]["expected"] == {"low": None, "high": None}
    assert [one["distance"] for one in told["similar"]] == [0.5]
    assert client.get(f"{V1}/findings/{'0' * 32}").status_code == 404
    room.fleet.execute("UPDATE finding_rows SET retracted_at = now() WHERE finding_id = %s", third)
    shown = [one["finding_id"] for one in get(client, "/findings")["items"]]
    assert third not in shown and other in shown
    assert third in [one["finding_id"] for one in get(client, "/findings", retracted="true")["items"]]


def test_pages_and_filters(room: Watchroom, client: httpx.Client) -> None:
    for number in range(5):
        room.find(begun_s=-number, cause=f"c{number}", severity=3 if number == 4 else 2)
        room.work()
        room.ahead_ms += 1_000
    page = get(client, "/findings", limit=2)
    rest = get(client, "/findings", limit=3, cursor=page["next"])
    assert [one["cause"] for one in page["items"] + rest["items"]] == ["c0", "c1", "c2", "c3", "c4"]
    assert rest["next"] is None
    assert [one["cause"] for one in get(client, "/findings", severity=3)["items"]] == ["c4"]
    assert get(client, "/findings", asset="Car 2")["items"] == []
    shown, first = [], get(client, "/alerts", limit=2, grouped="true")
    shown += first["items"]
    while first["next"]:
        first = get(client, "/alerts", limit=2, grouped="true", cursor=first["next"])
        shown += first["items"]
    assert [one["cause"] for one in shown] == ["c4", "c3", "c2", "c1", "c0"]
    (root,) = get(client, "/alerts")["items"]
    assert root["grouped"] == 4, "five of one asset within ten minutes are one"
    assert len(get(client, f"/alerts/{root['alert_id']}")["children"]) == 4
    assert client.get(f"{V1}/alerts", params={"cursor": "x"}).status_code == 422
    done = move(client, root["alert_id"], to_state="resolved", resolution="true", note="fuse").json()
    assert {one["state"] for one in done["children"]} == {"resolved"}, "a storm is resolved with its root"


def test_work_orders_as_json_and_as_a_file_that_runs_nothing(room: Watchroom, client: httpx.Client) -> None:
    room.find()
    room.work()
    move(client, room.alert(), to_state="assigned", assignee="=Ada", note="take the spare pump")
    (order,) = get(client, "/work-orders")["items"]
    assert (order["asset"], order["observed"], order["advice"]) == ("Car 1", 118.5, "Look at the coolant's level.")
    answer = client.get(f"{V1}/alerts/{room.alert()}/work-order", params={"form": "csv"})
    assert "attachment" in answer.headers["content-disposition"]
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["work_order"], row["assignee"], row["notes"]) == (room.alert(), "'=Ada", "take the spare pump")
    assert (row["running"], row["expected_high"]) == ("true", "96.0")
    assert client.get(f"{V1}/alerts/a-{'0' * 16}/work-order").status_code == 404


def test_reopening_beside_an_open_alert_of_the_cause_is_refused(room: Watchroom, client: httpx.Client) -> None:
    room.find()
    room.work()
    first = room.alert()
    move(client, first, to_state="resolved", resolution="false")
    room.find(begun_s=2 * 86_400)
    room.work()
    answer = move(client, first, to_state="reopened")
    assert (answer.status_code, answer.json()["code"]) == (409, "another_is_open")
