"""Groups and a fleet from a file: all or nothing, errors by line, the same file twice, one tenant's only."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.imports import COLUMNS, MOST_LINES, read_fleet
from api.keys import ROLES
from api.middleware import MAX_BODY_BYTES
from api.routes.groups import ADMIN, ARRANGERS, EXAMPLE
from contracts.book import decode_page
from contracts.registry import Registration, decode_registration
from tests.api.fix_api import SPEED, Fleet, Server

IMPORT = "/api/v1/fleet/import"
NOTHING = {"assets_made": 0, "assets_changed": 0, "devices_made": 0, "bindings_made": 0, "members_added": 0}


def send(client: httpx.Client, text: str, dry_run: bool = False) -> httpx.Response:
    return client.post(IMPORT, params={"dry_run": dry_run}, content=text.encode(), headers={"Content-Type": "text/csv"})


def rows(fleet: Fleet, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(fleet.dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


def everything(fleet: Fleet) -> list[tuple[Any, ...]]:
    return rows(
        fleet,
        "SELECT (SELECT json_agg(a ORDER BY asset_id) FROM assets a)::text, (SELECT json_agg(d) FROM devices d)::text,"
        " (SELECT json_agg(b) FROM bindings b)::text, (SELECT json_agg(g) FROM asset_groups g)::text,"
        " (SELECT count(*) FROM asset_group_members), (SELECT count(*) FROM outbox)",
    )


def test_a_fleet_from_a_file_once(fleet: Fleet, server: Server) -> None:
    before = everything(fleet)
    with server.client(fleet.key("north", "admin")) as client:
        dry = send(client, EXAMPLE, dry_run=True).raise_for_status().json()
        assert everything(fleet) == before and dry["dry_run"] and dry["accepted"]
        real = send(client, EXAMPLE).raise_for_status().json()
        assert {**real, "dry_run": True} == dry
        assert (real["devices_made"], real["bindings_made"], real["groups_made"], real["members_added"]) == (2, 2, 3, 3)
        after = everything(fleet)
        again = send(client, EXAMPLE).raise_for_status().json()
        assert {name: again[name] for name in NOTHING} == NOTHING and everything(fleet) == after
        listed = client.get("/api/v1/assets", params={"group": "Vans"}).json()["items"]
        assert [(one["name"], one["kind"], one["devices"]) for one in listed] == [("Van 7", "car", ["van-7"])]
        places = client.get("/api/v1/positions", params={"group": "Ridge"}).json()
        assert (places["name"], places["latitude"], places["longitude"]) == (["Turbine 3"], [49.03], [8.47])
        unknown = client.get("/api/v1/assets", params={"group": "Nobody"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "no_such_group")
    told = rows(fleet, "SELECT topic, kafka_key, kafka_value FROM outbox ORDER BY outbox_id")
    mine = {key: bytes(value) for topic, key, value in told if topic == "registry" and key in ("van-7", "wt-3")}
    (key,) = rows(fleet, "SELECT device_key FROM devices WHERE device = 'van-7'")[0]
    assert decode_registration(mine["van-7"]) == Registration("van-7", key, "north", fleet.tenants["north"], "device")
    pages = [decode_page(bytes(value)) for topic, _, value in told if topic == "book"]
    assert {page.table for page in pages} >= {"assets", "devices", "bindings", "asset_groups", "asset_group_members"}


def test_a_device_moves_with_a_date_only(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north", "admin")) as client:
        undated = send(client, "device,asset\nnorth-1,Car 9\n")
        assert undated.status_code == 422 and undated.json()["errors"][0]["parameter"] == "line 2: since"
        assert rows(fleet, "SELECT count(*) FROM assets WHERE name = 'Car 9'") == [(0,)]
        moved = send(client, "device,asset,since\nnorth-1,Car 9,2026-01-01T00:00:00Z\nnorth-2,Car 2,\n")
        assert moved.json()["bindings_moved"] == 1 and moved.json()["bindings_made"] == 0
        back = send(client, "device,asset,since\nnorth-1,Car 1,2025-01-01T00:00:00Z\n")
        assert back.json()["errors"][0]["parameter"] == "line 2: since"
    found = rows(
        fleet,
        "SELECT a.name, b.valid::text FROM bindings b JOIN assets a USING (asset_id) WHERE device_key = 1 ORDER BY 2",
    )
    assert [name for name, _ in found] == ["Car 1", "Car 9"]
    assert [span.replace('"', "").replace(" ", "T")[:20] for _, span in found] == [
        "(,2026-01-01T00:00:0", "[2026-01-01T00:00:00",
    ]  # fmt: skip


def test_one_bad_line_and_nothing_happens(fleet: Fleet, server: Server) -> None:
    before = everything(fleet)
    text = "device,asset,latitude,longitude\nok-1,A,,\nbad name,B,,\nok-2,C,91,0\nok-1,D,,\nsouth-1,E,,\n"
    with server.client(fleet.key("north", "admin")) as client:
        refused = send(client, text)
        assert (refused.status_code, refused.json()["code"]) == (422, "import_refused")
        assert [one["parameter"] for one in refused.json()["errors"]] == [
            "line 3: device", "line 4: latitude", "line 5: device",
        ]  # fmt: skip
        taken = send(client, "device,asset\nsouth-1,E\n", dry_run=True).json()
        assert not taken["accepted"] and taken["errors"][0]["reason"] == "device_taken"
        assert send(client, "device,asset\nsouth-1,E\n").status_code == 422
        assert everything(fleet) == before
        as_json = client.post(IMPORT, json={})
        assert (as_json.status_code, as_json.json()["code"]) == (415, "not_csv")
        large = "device,asset\n" + "".join(f"d-{n},{'x' * 150}{n}\n" for n in range(2_000))
        assert len(large) > MAX_BODY_BYTES and send(client, large).json()["devices_made"] == 2_000


def test_groups_are_made_changed_and_taken_away(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north")) as client:
        put = client.put("/api/v1/groups/Night shift", json={"assets": ["Car 2", "Car 1", "Car 1"]})
        assert put.json() == {"name": "Night shift", "assets": ["Car 1", "Car 2"]}
        said = rows(fleet, "SELECT count(*) FROM outbox")
        assert client.put("/api/v1/groups/Night shift", json={"assets": ["Car 1", "Car 2"]}).status_code == 200
        assert rows(fleet, "SELECT count(*) FROM outbox") == said, "the same again is told to nobody"
        wrong = client.put("/api/v1/groups/Night shift", json={"assets": ["Turbine 1"]})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "no_such_asset")
        assert client.put("/api/v1/groups/Empty", json={"assets": []}).json()["assets"] == []
        listed = client.get("/api/v1/groups", params={"limit": 1}).json()
        rest = client.get("/api/v1/groups", params={"limit": 1, "cursor": listed["next"]}).json()
        assert [(one["name"], one["assets"]) for one in listed["items"] + rest["items"]] == [
            ("Empty", 0), ("Night shift", 2),
        ]  # fmt: skip
        assert client.put("/api/v1/groups/Night shift", json={"assets": ["Car 3"]}).json()["assets"] == ["Car 3"]
        with server.client(fleet.key("south", "admin")) as other:
            assert other.get("/api/v1/groups").json()["items"] == []
            assert other.get("/api/v1/groups/Empty").status_code == 404
            assert other.delete("/api/v1/groups/Empty").status_code == 404
        assert client.delete("/api/v1/groups/Night shift").status_code == 204
        assert client.get("/api/v1/groups/Night shift").json()["code"] == "no_such_group"
    last = rows(fleet, "SELECT kafka_key, kafka_value FROM outbox WHERE topic = 'book' ORDER BY outbox_id DESC LIMIT 2")
    assert {key.split("/")[0] for key, _ in last} == {"asset_groups", "asset_group_members"}
    assert [value for _, value in last] == [None, None], "what is gone becomes a tombstone"


@pytest.mark.parametrize("role", ROLES)
def test_who_may_arrange_and_who_may_import(fleet: Fleet, server: Server, role: str) -> None:
    fleet.latest("north-1", SPEED.number, datetime.now(UTC), 1.0)
    with server.client(fleet.key("north", role)) as client:
        put = client.put("/api/v1/groups/Vans", json={"assets": []}).status_code
        gone = client.delete("/api/v1/groups/Vans").status_code
        assert (put, gone) == ((200, 204) if role in ARRANGERS else (403, 403))
        assert send(client, EXAMPLE, dry_run=True).status_code == (200 if role in ADMIN else 403)
    assert {"admin"} == ADMIN and {"operator", "admin"} == ARRANGERS


FAULTS = [
    (b"", "device", "missing_column"), (b"device;asset\na;b\n", "device", "missing_column"),
    (b"device,asset,colour\n", "colour", "unknown_column"), (b"device,asset,asset\n", "asset", "doubled_column"),
    (b"device,asset\n", "device", "empty_file"), (b"device,asset\na\n", "", "bad_line"),
    (b"device,asset\n\xff,b\n", "", "not_utf8"), (b'device,asset\n"a,b\n', "", "bad_csv"),
    (b"device,asset\na,\n", "asset", "bad_name"), (b"device,asset,since\na,b,yesterday\n", "since", "bad_time"),
    (b"device,asset,since\na,b,2026-01-01T00:00:00\n", "since", "bad_time"),
    (b"device,asset,asset_kind\na,b,boat\n", "asset_kind", "bad_kind"),
    (b"device,asset,latitude\na,b,1\n", "latitude", "bad_place"),
    (b"device,asset,latitude,longitude\na,b,nan,1\n", "latitude", "bad_place"),
    (b"device,asset,asset_kind\na,b,car\nc,b,truck\n", "asset", "contradiction"),
    (b"device,asset\n" + b"".join(b"d%d,a\n" % n for n in range(MOST_LINES + 1)), "", "too_many_lines"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "column", "reason"), FAULTS, ids=[fault[2] for fault in FAULTS])
def test_what_is_wrong_with_a_file_is_named(data: bytes, column: str, reason: str) -> None:
    _, errors = read_fleet(data)
    assert [(one.column, one.reason) for one in errors] == [(column, reason)]
    assert errors[0].line >= 1 and errors[0].detail


@given(st.binary(max_size=80))
def test_any_bytes_are_lines_or_errors(data: bytes) -> None:
    for file in (data, ",".join(COLUMNS).encode() + b"\n" + data):
        lines, errors = read_fleet(file)
        assert lines or errors
        json.dumps([one.asset for one in lines])


def test_text_that_no_database_holds_is_refused_and_not_our_fault(fleet: Fleet, server: Server) -> None:
    """PostgreSQL keeps no NUL: in a body, in a query, in JSON that is kept as such."""
    with server.client(fleet.key("north", "admin")) as client:
        answers = [
            client.put("/api/v1/groups/Vans", json={"assets": ["Car 1", "Car\x002"]}),
            client.get("/api/v1/alerts", params={"assignee": "a\x00b"}),
            client.get("/api/v1/assets", params={"search": "\x00"}),
            client.get("/api/v1/assets/Car%00/latest"),
        ]
        groups = client.get("/api/v1/groups").json()["items"]
    assert [one.status_code for one in answers] == [422] * 4
    assert {one.json()["code"] for one in answers} == {"nul_character"}
    assert groups == []
