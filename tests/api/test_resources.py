"""What each resource answers, on a real PostgreSQL, through a real server."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from api.queries.assets import find_asset, list_assets
from api.queries.pool import Store
from api.queries.readings import Place, read_page
from contracts.packet import Quality
from infra.enrol import Enrolment
from tests.api.fix_api import AHEAD, RPM, SPEED, Fleet, Server, ms_of

NOW = datetime.now(UTC).replace(microsecond=0)


def stamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def test_assets_tell_state_and_age_and_never_a_zero_for_nothing(fleet: Fleet, server: Server) -> None:
    now = datetime.now(UTC)
    fleet.latest("north-1", SPEED.number, now + AHEAD, 50.5)
    fleet.latest("north-2", SPEED.number, now - timedelta(hours=3), 10.0, received=now + AHEAD)
    with server.client(fleet.key("north")) as client:
        body = client.get("/api/v1/assets", params={"signal": SPEED.path}).json()
    one, two, three = body["items"]
    assert (one["name"], one["state"], one["signals"], one["devices"]) == ("Car 1", "live", 1, ["north-1"])
    assert 10_800 <= two["age_s"] < 14_400
    assert one["values"][0]["value"] == 50.5 and one["values"][0]["unit"] == "km/h"
    assert (two["state"], three["state"]) == ("catching_up", "no_data")
    assert three["age_s"] is None and three["measured_at"] is None and three["values"] == []
    assert body["as_of"].endswith("Z") and body["next"] is None


def test_assets_are_paged_and_searched(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north")) as client:
        first = client.get("/api/v1/assets", params={"limit": 2}).json()
        rest = client.get("/api/v1/assets", params={"limit": 2, "cursor": first["next"]}).json()
        found = client.get("/api/v1/assets", params={"search": "AR 2"}).json()
    assert [item["name"] for item in first["items"] + rest["items"]] == ["Car 1", "Car 2", "Car 3"]
    assert rest["next"] is None
    assert [item["name"] for item in found["items"]] == ["Car 2"]


def test_latest_shows_a_value_that_is_no_number_as_null_with_its_quality(fleet: Fleet, server: Server) -> None:
    fleet.latest("north-1", SPEED.number, NOW, float("nan"), Quality.NOT_FINITE)
    fleet.latest("north-1", RPM.number, NOW, 900.0)
    with server.client(fleet.key("north")) as client:
        body = client.get("/api/v1/assets/Car 1/latest").json()
    values = {value["signal"]: value for value in body["asset"]["values"]}
    assert values[SPEED.path]["value"] is None and values[SPEED.path]["quality"] == "not_finite"
    assert values[RPM.path]["value"] == 900.0 and values[RPM.path]["quality"] == "good"
    assert values[RPM.path]["measured_at"] == stamp(NOW)


def test_an_asset_keeps_its_latest_when_its_device_moves_on(fleet: Fleet, server: Server) -> None:
    """north-1 measured Car 1 until an hour ago, and Car 9 since then."""
    moved = NOW - timedelta(hours=1)
    fleet.window("north-1", SPEED.number, moved - timedelta(minutes=5), [5000])
    fleet.window("north-1", SPEED.number, moved - timedelta(minutes=2), [6000, 6100])
    fleet.window("north-1", SPEED.number, moved + timedelta(minutes=2), [9900])
    for starts_at, at in ((-5, -5), (-2, -2), (2, 2)):
        fleet.execute(
            "UPDATE window_aggregates SET last_ms = %s WHERE starts_at = %s",
            ms_of(moved + timedelta(minutes=at, seconds=3)), moved + timedelta(minutes=starts_at),
        )  # fmt: skip
    fleet.latest("north-1", SPEED.number, NOW, 99.0)
    fleet.enrol(Enrolment("north-1", "north", "Car 9", "car", since=moved))
    with server.client(fleet.key("north")) as client:
        old, new = (client.get(f"/api/v1/assets/Car {n}/latest").json()["asset"] for n in (1, 9))
        listed = client.get("/api/v1/assets", params={"signal": SPEED.path}).json()["items"]
    (kept,), (fresh,) = old["values"], new["values"]
    assert (kept["value"], kept["device"], kept["received_at"]) == (61.0, "north-1", None)
    assert kept["measured_at"] == stamp(moved - timedelta(minutes=2) + timedelta(seconds=3))
    assert (old["state"], fresh["value"], fresh["received_at"]) == ("silent", 99.0, stamp(NOW))
    assert {item["name"]: [one["value"] for one in item["values"]] for item in listed if item["values"]} == {
        "Car 1": [61.0], "Car 9": [99.0],
    }  # fmt: skip
    with psycopg.connect(fleet.dsn) as connection:
        rows = connection.execute("SELECT asset, value FROM latest ORDER BY asset").fetchall()
    assert rows == [("Car 1", 61.0), ("Car 9", 99.0)]


def test_readings_come_in_order_whole_and_once_over_pages(fleet: Fleet, server: Server) -> None:
    expected = []
    for packet in (3, 0, 2, 1):  # stored in any order, overlapping in time
        at = NOW - timedelta(seconds=60 - packet)
        fleet.packet("north-1", at, [(SPEED.number, 400 * k, packet * 10.0 + k, 0) for k in range(5)])
        expected += [(at + timedelta(milliseconds=400 * k), packet * 10.0 + k) for k in range(5)]
    question: dict[str, str | int] = {
        "signal": SPEED.path, "from": stamp(NOW - timedelta(hours=1)), "to": stamp(NOW), "limit": 3
    }  # fmt: skip
    got = []
    with server.client(fleet.key("north")) as client:
        while True:
            body = client.get("/api/v1/assets/Car 1/readings", params=question).raise_for_status().json()
            got += [(datetime.fromisoformat(item["measured_at"]), item["value"]) for item in body["items"]]
            if body["next"] is None:
                break
            question["cursor"] = body["next"]
    assert got == sorted(expected)
    assert body["unit"] == "km/h" and body["from"] == stamp(NOW - timedelta(hours=1))


def test_readings_belong_to_the_asset_the_device_was_bound_to(fleet: Fleet, server: Server) -> None:
    moved = NOW - timedelta(minutes=10)
    fleet.packet("north-1", moved - timedelta(minutes=1), [(SPEED.number, 0, 1.0, 0)])
    fleet.packet("north-1", moved + timedelta(minutes=1), [(SPEED.number, 0, 2.0, 0)])
    fleet.packet("north-1", moved, [(SPEED.number, -1, 3.0, 0), (SPEED.number, 0, 4.0, 0)])
    fleet.enrol(Enrolment("north-1", "north", "Car 9", "car", since=moved))
    question = {"signal": SPEED.path, "from": stamp(NOW - timedelta(hours=1)), "to": stamp(NOW)}
    with server.client(fleet.key("north")) as client:
        before = client.get("/api/v1/assets/Car 1/readings", params=question).json()
        after = client.get("/api/v1/assets/Car 9/readings", params=question).json()
    assert [item["value"] for item in before["items"]] == [1.0, 3.0]
    assert [item["value"] for item in after["items"]] == [4.0, 2.0]


def test_windows_with_a_gap_left_out(fleet: Fleet, server: Server) -> None:
    start = NOW.replace(second=0) - timedelta(minutes=5)
    fleet.window("north-1", SPEED.number, start, [1000, 3000, 2000])
    fleet.window("north-1", SPEED.number, start + timedelta(seconds=20), [500])
    fleet.window("north-1", SPEED.number, start, [1], width_s=60)
    question: dict[str, str | int] = {"signal": SPEED.path, "width_s": 10, "limit": 1}
    with server.client(fleet.key("north")) as client:
        first = client.get("/api/v1/assets/Car 1/windows", params=question).json()
        second = client.get("/api/v1/assets/Car 1/windows", params={**question, "cursor": first["next"]}).json()
    (one,), (two,) = first["items"], second["items"]
    assert (one["starts_at"], one["n"], one["min"], one["max"], one["last"]) == (stamp(start), 3, 10.0, 30.0, 20.0)
    assert one["mean"] == pytest.approx(20.0) and one["stddev"] == pytest.approx(10.0)
    assert (two["starts_at"], two["stddev"]) == (stamp(start + timedelta(seconds=20)), None)
    assert second["next"] is None and first["unit"] == "km/h" and one["closed"] and not one["final"]


def test_ledger_accounts_for_every_packet(fleet: Fleet, server: Server) -> None:
    device, tenant = fleet.devices["north-1"], fleet.tenants["north"]
    fleet.execute(
        "INSERT INTO seen_ranges VALUES (%s, 1, 7, %s, '{[1,5),[6,9)}', 7, 70, 2), (%s, 2, 8, %s, '{[1,2)}', 1, 10, 0)",
        device, tenant, device, tenant,
    )  # fmt: skip
    fleet.execute(
        "INSERT INTO agent_status VALUES (%s, 1, 7, %s, 11, 0, now(), '{\"accepted_samples\": 100,"
        ' "oldest_unacked_ms": 900}\')', device, tenant,
    )  # fmt: skip
    with server.client(fleet.key("north", "auditor")) as client:
        body = client.get("/api/v1/ledger", params={"limit": 1}).json()
        rest = client.get("/api/v1/ledger", params={"limit": 1, "cursor": body["next"]}).json()
    (row,) = body["items"]
    assert row["missing"] == [{"first": 5, "last": 5}, {"first": 9, "last": 10}] and row["missing_packets"] == 3
    assert (row["accepted_packets"], row["stored_packets"], row["duplicates_suppressed"]) == (10, 7, 2)
    assert body["totals"]["missing_packets"] == 3 and body["totals"]["accepted_packets"] == 11
    assert rest["items"][0]["accepted_samples"] is None and rest["next"] is None


def test_the_ledger_says_where_the_rest_is_and_null_for_what_nobody_said(fleet: Fleet, server: Server) -> None:
    one, two, tenant = fleet.devices["north-1"], fleet.devices["north-2"], fleet.tenants["north"]
    account = '{"accepted_samples": 100, "oldest_unacked_ms": 900, "not_accepted_samples": 3, "held": [[1, 9, 9]]}'
    fleet.execute(
        "INSERT INTO seen_ranges VALUES (%s, 1, 7, %s, '{[1,5)}', 4, 40, 0), (%s, 1, 7, %s, '{[1,3)}', 2, 20, 0)",
        one, tenant, two, tenant,
    )  # fmt: skip
    fleet.execute("INSERT INTO agent_status VALUES (%s, 1, 7, %s, 11, 0, now(), %s)", one, tenant, account)
    fleet.execute("INSERT INTO agent_gaps VALUES (%s, 1, 5, 6, %s, 2, 0, 2, 20, 7, now())", one, tenant)
    fleet.execute("INSERT INTO agent_gaps VALUES (%s, 1, 1, 9, %s, 3, 1, 0, 0, 7, now())", two, tenant)
    fleet.execute(
        "INSERT INTO ledger_gaps (device_key, boot_epoch, tenant_id, numbers, missing, since, opened_at)"
        " VALUES (%s, 1, %s, '{[7,9)}', '{[7,9)}', now(), now())", one, tenant,
    )  # fmt: skip
    with server.client(fleet.key("north", "auditor")) as client:
        body = client.get("/api/v1/ledger").json()
        dropped = client.get("/api/v1/ledger/drops", params={"limit": 1}).json()
        more = client.get("/api/v1/ledger/drops", params={"limit": 1, "cursor": dropped["next"]}).json()
        gaps = client.get("/api/v1/ledger/gaps", params={"state": "open", "device": "north-1"}).json()
        nothing = client.get("/api/v1/ledger/gaps", params={"cursor": gaps["next"] or "W10"})
        alone = client.get("/api/v1/ledger", params={"device": "north-2"}).json()
    told, silent = body["items"]
    assert (told["confirmed_packets"], told["held_packets"], told["on_its_way_packets"]) == (7, 1, 3)
    assert told["missing_packets"] == 4 and told["dropped_packets"] == 2 and told["not_accepted_samples"] == 3
    assert told["oldest_waiting_ms"] >= 900 and told["heard_at"] == told["reported_at"]
    for name in ("confirmed_packets", "held_packets", "on_its_way_packets", "not_accepted_samples", "heard_at"):
        assert silent[name] is None
    assert body["totals"]["open_gaps"] == 1 and body["totals"]["confirmed_packets"] == 7
    assert alone["items"] == [silent]
    (first,), (second,) = dropped["items"], more["items"]
    assert (first["reason"], first["class"], first["first_seq"], first["packets"]) == ("spool_age", "bulk", 5, 2)
    assert (second["reason"], second["packets"], more["next"]) == ("corrupt_spool", None, None)
    [gap] = gaps["items"]
    assert (gap["state"], gap["missing_packets"], gap["first_seq"], gap["last_seq"]) == ("open", 2, 7, 8)
    assert nothing.status_code == 422


def test_what_was_set_aside_is_counted_by_reason(fleet: Fleet, server: Server) -> None:
    for number, reason in enumerate(("bad_crc", "bad_crc", "stale")):
        fleet.insert("refused", {
            "topic_id": "00000000-0000-0000-0000-000000000000", "kafka_partition": 0, "kafka_offset": number,
            "tenant_id": fleet.tenants["north"], "device": "north-1", "reason": reason, "detail": "", "mqtt_topic": "t",
            "received_at": NOW, "bytes": b"123",
        })  # fmt: skip
    with server.client(fleet.key("north", "auditor")) as client:
        items = client.get("/api/v1/dead-letters").json()["items"]
        assert [(item["reason"], item["packets"], item["bytes"]) for item in items] == [
            ("bad_crc", 2, 6),
            ("stale", 1, 3),
        ]
        assert items[0]["samples"] is None
        assert client.get("/api/v1/quarantine").json()["items"] == []


def test_the_catalogue_and_who_i_am(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("south", "insurer")) as client:
        signals = {item["path"]: item for item in client.get("/api/v1/signals").json()["items"]}
        me = client.get("/api/v1/whoami").json()
    assert signals["Vehicle.Speed"]["unit"] == "km/h" and signals["Vehicle.Speed"]["resolution"] == 0.01
    assert (me["tenant"], me["role"]) == ("south", "insurer")


@pytest.mark.parametrize("packets", [1, 2, 5])
def test_pages_smaller_than_the_packets_that_overlap_lose_nothing(fleet: Fleet, packets: int) -> None:
    """Two devices on one asset, packets that begin at the same moment or inside of each other."""
    fleet.enrol(Enrolment("north-8", "north", "Car 1", "car"))
    expected = []
    dice = random.Random(packets)
    for device in ("north-1", "north-8"):
        for _ in range(12):
            at = NOW - timedelta(seconds=60 - dice.randrange(0, 8) * 5)
            fleet.packet(device, at, [(SPEED.number, k, dice.random(), 0) for k in (0, 7_000, 3_000)])
            expected += [ms_of(at) + k for k in (0, 7_000, 3_000)]

    async def read() -> list[int]:
        store = Store(fleet.api_dsn, 1, 5.0, 10_000)
        await store.open()
        found: list[int] = []
        place: Place | None = Place(ms_of(NOW - timedelta(hours=1)))
        async with store.transaction(fleet.tenants["north"]) as connection:
            asset = await find_asset(connection, "Car 1")
            while place is not None and asset is not None:
                page = await read_page(connection, asset["asset_id"], SPEED.number, place, ms_of(NOW), 7, packets)
                found += page.rows.ms
                place = page.next_place
        await store.close()
        return found

    assert asyncio.run(read()) == sorted(expected)


def test_a_question_asked_often_is_planned_for_its_own_values(fleet: Fleet) -> None:
    """PostgreSQL's plan for any values took over after ten, and made a page of ten thousand assets time out."""

    async def plans() -> tuple[int, int]:
        store = Store(fleet.api_dsn, 1, 5.0, 10_000)
        await store.open()
        try:
            async with store.transaction(fleet.tenants["north"]) as connection:
                for _ in range(20):
                    assert len(await list_assets(connection, limit=10)) == 3
                cursor = await connection.execute(
                    "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%picked%'"
                )
                row = await cursor.fetchone()
        finally:
            await store.close()
        assert row is not None, "it is prepared by now"
        return row["generic_plans"], row["custom_plans"]

    generic, custom = asyncio.run(plans())
    assert generic == 0 and custom >= 10
