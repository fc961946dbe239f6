"""The thirteen fleet questions: ordered = disordered = a slow reference, through the sink, the closer and the API."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.fleet import days, spans
from api.fleet.asking import Parameters, ask
from api.fleet.base import Found, Question
from api.fleet.menu import MENU, QUESTIONS
from api.forms import Form
from api.queries.pool import Connection, Store
from api.shapes_questions import answered
from api.tables import REAL, TEXT, TIME
from tests.api.fix_api import SPEED, Fleet, Server
from tests.api.fix_trucks import DAY, END, H0, HOUR, TruckStore, truck_store
from tests.api.question_reference import Reference, Rows, at

__all__ = ["truck_store"]
LONG = 92 * 86_400
NOW = END + 3 * HOUR + 300_000
AGE = 12 * HOUR
"""truck_6 lost its box longer ago."""
Expected = Callable[[Reference], Rows]

CASES: list[tuple[str, dict[str, Any], Expected]] = [
    ("last-locations", {"max_age_s": AGE / 1000}, lambda r: r.last_locations(None, NOW, AGE)),
    ("last-locations", {"max_age_s": 1e9, "fleet": "West"}, lambda r: r.last_locations("West", NOW, 2**50)),
    ("last-location", {"asset": "truck_6", "max_age_s": 1e9}, lambda r: r.last_locations(None, NOW, 2**50, "truck_6")),
    ("low-fuel", {"threshold": 60.0}, lambda r: r.low_fuel(None, NOW, DAY, 60)),
    ("high-load", {"threshold": 0.4}, lambda r: r.high_load(None, NOW, DAY, 0.4)),
    *(
        ("stationary-vehicles", {"start": at(H0 + ms)}, lambda r, ms=ms: r.stationary(None, H0 + ms, 1))
        for ms in (9 * HOUR, 17 * HOUR + 7 * 60_000, 30 * HOUR + 60_000, 44 * HOUR)
    ),
    *(
        (
            "long-driving-sessions", {"end": at(H0 + end * HOUR + 600_000), "threshold": limit},
            lambda r, end=end, limit=limit: r.long_driving(
                None, H0 + (end - 4) * HOUR + 600_000, H0 + end * HOUR + 600_000, limit
            ),
        )
        for end, limit in ((12, 22.0), (12, 10.0), (26, 15.0), (40, 15.0))
    ),
    (
        "long-daily-sessions", {"end": at(H0 + 36 * HOUR)},
        lambda r: r.long_driving(None, H0 + 12 * HOUR, H0 + 36 * HOUR, 60),
    ),
    (
        "long-daily-sessions", {"end": at(H0 + 36 * HOUR), "threshold": 100.0, "fleet": "West"},
        lambda r: r.long_driving("West", H0 + 12 * HOUR, H0 + 36 * HOUR, 100),
    ),
    ("fuel-consumption-against-nominal", {}, lambda r: r.consumption(H0, H0 + 2 * DAY)),
    ("daily-driving-hours", {}, lambda r: r.daily_driving(H0, H0 + 2 * DAY)),
    ("daily-driving-sessions", {}, lambda r: r.daily_sessions(H0, H0 + 2 * DAY)),
    ("average-load", {}, lambda r: r.average_load(H0, H0 + 2 * DAY)),
    ("daily-activity", {}, lambda r: r.daily_activity(H0, H0 + 2 * DAY)),
    ("breakdown-frequency", {}, lambda r: r.breakdowns(H0, H0 + 2 * DAY)),
    (
        "breakdown-frequency", {"start": at(H0 + DAY), "end": at(H0 + 2 * DAY)},
        lambda r: r.breakdowns(H0 + DAY, H0 + 2 * DAY),
    ),
]  # fmt: skip


def test_ordered_disordered_and_the_slow_reference_say_the_same(truck_store: TruckStore) -> None:
    told = truck_store.tell()
    reference = Reference(truck_store.trucks, told)
    expected = [[rounded(row) for row in sorted_rows(case(reference))] for _, _, case in CASES]
    assert {name for name, _, _ in CASES} == set(MENU) and len(MENU) == 13
    assert all(expected), "a case that nobody answers to shows nothing"
    assert truck_store.store() == 0
    ordered = answers(truck_store)
    assert ordered == expected
    truck_store.forget()
    assert truck_store.store(disorder_seed=7) > 20, "late packets must have reached hours that were said before"
    assert answers(truck_store) == ordered


def answers(store: TruckStore) -> list[list[tuple[Any, ...]]]:
    """Rows of every case without ages, by a tenant's own transaction."""

    async def all_of_them() -> list[Found]:
        pool = Store(store.api_dsn, 1, 10.0, 60_000)
        await pool.open()
        try:
            async with pool.transaction(store.devices["box_0"].tenant_id) as connection:
                return [
                    await MENU[name].answer(connection, ask(MENU[name], Parameters(**said), at(NOW), LONG)[0])
                    for name, said, _ in CASES
                ]
        finally:
            await pool.close()

    found = asyncio.run(all_of_them())
    made = []
    for (name, _, _), one in zip(CASES, found, strict=True):
        shown = [column.name != "age_s" for column in MENU[name].columns]
        rows = [tuple(cell for cell, wanted in zip(row, shown, strict=True) if wanted) for row in one.rows]
        made.append([rounded(row) for row in sorted_rows(rows)])
    return made


def rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sums of doubles in another order differ in their last digits."""
    return tuple(round(cell, 9) if isinstance(cell, float) else cell for cell in row)


def sorted_rows(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def test_every_question_is_described_and_answers_also_when_nothing_was_ever_told(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north")) as client:
        listed = get(client, "/api/v1/questions")["items"]
        assert [one["name"] for one in listed] == [one.name for one in QUESTIONS]
        for one in listed:
            assert all(one[text] for text in ("asks", "semantics", "suite", "differs", "source"))
            said = {"asset": "Car 1"} if "asset" in one["parameters"] else {}
            body = get(client, f"/api/v1/questions/{one['name']}", **said)
            assert body["items"] == [] and body["columns"] == one["columns"] and body["next"] is None
            assert body["counted"]["vehicles"] == (1 if said else 3), "of this tenant only, and no turbines"
            assert (body["from"] is None) == (one["step_s"] is None)


def test_pages_go_on_where_the_last_one_ended_and_keep_the_range(fleet: Fleet, server: Server) -> None:
    for device in ("north-1", "north-2", "north-3"):
        fleet.window(device, 1, at(H0), [0, 10], 60)
    with server.client(fleet.key("north")) as client:
        asked = {"from": "2026-09-22T00:00:00Z", "to": "2026-09-22T00:10:00Z", "limit": 2}
        first = get(client, "/api/v1/questions/stationary-vehicles", **asked)
        rest = get(client, "/api/v1/questions/stationary-vehicles", limit=2, cursor=first["next"])
        other = client.get("/api/v1/questions/low-fuel", params={"cursor": first["next"]})
    assert [item["asset"] for item in first["items"] + rest["items"]] == ["Car 1", "Car 2", "Car 3"]
    assert first["items"][0] == {"asset": "Car 1", "driver": None, "mean_speed": 0.05, "readings": 2}
    assert rest["next"] is None and (rest["from"], rest["to"]) == (first["from"], first["to"])
    assert other.json()["code"] == "bad_cursor"


READS = [
    ("stationary-vehicles", spans, "sums"), ("long-driving-sessions", spans, "strips"),
    ("fuel-consumption-against-nominal", days, "sums"), ("average-load", days, "sums"),
    ("daily-driving-hours", days, "strips"), ("daily-activity", days, "strips"),
]  # fmt: skip


def test_a_vehicle_that_comes_between_two_statements_is_not_in_the_answer(
    fleet: Fleet, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer is about one moment: a fleet that changes while it is counted changes the next answer only."""
    fleet.execute(
        "UPDATE assets SET fleet = 'East', load_capacity_kg = 1000, nominal_l_100km = 20, model = 'M'"
        " WHERE name IN ('Car 1', 'Car 2')"
    )
    for device in ("north-1", "north-2"):
        for signal, width_s in ((SPEED, 60), (days.CONSUMPTION, 86_400), (days.LOAD, 86_400)):
            fleet.window(device, signal.number, at(H0), [0, 10], width_s)
        for mark in (1, 2, 3):
            strip = {"device_key": fleet.devices[device], "mark": mark, "day": at(H0).date(), "strip": "1" * 144}
            fleet.insert("day_strips", strip | {"tenant_id": fleet.tenants["north"]})

    async def while_it_joins(read: Callable[..., Any], connection: Connection, *rest: Any) -> Any:
        fleet.execute("UPDATE assets SET fleet = 'East' WHERE name = 'Car 2'")
        return await read(connection, *rest)

    with server.client(fleet.key("north")) as client:
        for name, room, read in READS:
            ends = {"from": "2026-09-22T00:00:00Z"}
            if not MENU[name].time.width_ms:
                ends["to"] = "2026-09-23T00:00:00Z"
            fleet.execute("UPDATE assets SET fleet = 'West' WHERE name = 'Car 2'")
            with monkeypatch.context() as patched:
                patched.setattr(room, read, partial(while_it_joins, getattr(room, read)))
                during = get(client, f"/api/v1/questions/{name}", fleet="East", **ends)
            after = get(client, f"/api/v1/questions/{name}", fleet="East", **ends)
            told = [(one["counted"]["vehicles"], one["counted"]["no_data"]) for one in (during, after)]
            assert told == [(1, 0), (2, 0)], name


def test_an_answer_says_up_to_when_it_is_settled(fleet: Fleet, server: Server) -> None:
    """Buckets of an hour that is not over are not told: who asks for it anyway must not take it for a quiet one."""
    now = datetime.now(UTC)
    young = now.replace(minute=now.minute // 10 * 10, second=0, microsecond=0)
    old, today = young - timedelta(days=2), young.replace(hour=0, minute=0)
    path = "/api/v1/questions/long-driving-sessions"
    with server.client(fleet.key("north")) as client:
        for question, said, complete in (
            (path, {"to": young}, False), (path, {"to": old}, True), (path, {}, True),
            ("/api/v1/questions/daily-activity", {"to": today - timedelta(days=1)}, True),
            ("/api/v1/questions/low-fuel", {}, True),
        ):  # fmt: skip
            told = get(client, question, **{name: one.isoformat() for name, one in said.items()})
            assert told["complete"] is complete, (question, said)
            settled = told["settled_to"]
            if told["to"] is None:
                assert settled is None
                continue
            assert settled.endswith("Z") and (settled == told["to"]) is complete
        first = get(client, path, to=young.isoformat())
        late = now - datetime.fromisoformat(first["settled_to"])
        assert timedelta(minutes=62) <= late < timedelta(minutes=75), "an hour, its roll-up, and a started bucket"


def test_a_day_that_has_just_ended_is_not_settled_yet() -> None:
    question = MENU["daily-activity"]
    for past_ms, complete in ((60_000, False), (120_000, True)):
        asked, _ = ask(question, Parameters(start=at(H0 - DAY), end=at(H0)), at(H0 + past_ms), LONG)
        told = answered(question, asked, Found([]), [], None)
        assert (told["complete"], told["settled_to"]) == (
            complete, "2026-09-22T00:00:00Z" if complete else "2026-09-21T00:00:00Z"
        )  # fmt: skip


def test_an_answer_comes_in_each_form_whole_and_alike(fleet: Fleet, server: Server) -> None:
    for device in ("north-1", "north-2", "north-3"):
        fleet.window(device, 1, at(H0), [0, 10], 60)
    path = "/api/v1/questions/stationary-vehicles"
    asked = {"from": "2026-09-22T00:00:00Z", "to": "2026-09-22T00:10:00Z", "limit": "1"}
    with server.client(fleet.key("north")) as client:
        told = {form: client.get(path, params=asked, headers={"Accept": form.value.media}) for form in Form}
        nobody = client.get("/api/v1/questions/low-fuel", headers={"Accept": "text/csv"})
    assert {one.status_code for one in told.values()} == {200}
    rows = [{"asset": f"Car {n}", "driver": None, "mean_speed": 0.05, "readings": 2} for n in (1, 2, 3)]
    assert [json.loads(line) for line in told[Form.NDJSON].text.splitlines()] == rows
    assert told[Form.CSV].text.splitlines() == [
        '"asset","driver","mean_speed","readings"',
        *(f'"Car {n}",,0.05,2' for n in (1, 2, 3)),
    ]
    assert pa.ipc.open_stream(told[Form.ARROW].content).read_all().to_pylist() == rows
    assert pq.read_table(io.BytesIO(told[Form.PARQUET].content)).to_pylist() == rows
    assert told[Form.JSON].json()["items"] == rows[:1], "pages of JSON"
    assert nobody.text.splitlines() == ['"asset","driver","fuel_level","measured_at","age_s"']


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)
def test_the_files_kinds_are_those_of_the_cells(question: Question) -> None:
    """A time is a time, a count a whole number, a name a word: by the columns' own names and units."""
    for column in question.columns:
        named = column.unit == "" and column.name in ("asset", "fleet", "driver", "model", "day")
        timed = column.name.endswith("_at")
        assert (column.kind == TEXT) == named and (column.kind == TIME) == timed
        assert column.kind == REAL or not column.unit


def test_another_tenant_is_told_nothing(fleet: Fleet, server: Server) -> None:
    fleet.window("north-1", 1, at(H0), [0], 60)
    with server.client(fleet.key("south")) as client:
        body = get(client, "/api/v1/questions/stationary-vehicles", **{"from": "2026-09-22T00:00:00Z"})
    assert body["items"] == [] and body["counted"] == {"vehicles": 0, "no_data": 0}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("who-is-best", {}, "no_such_question"),
    ("last-location", {}, "asset_needed"),
    ("last-locations", {"asset": "Car 1"}, "not_taken"),
    ("low-fuel", {"from": "2026-09-22T00:00:00Z"}, "not_taken"),
    ("last-locations", {"threshold": 1}, "not_taken"),
    ("low-fuel", {"threshold": "nan"}, "bad_threshold"),
    ("daily-activity", {"from": "2026-09-22T01:00:00Z"}, "bad_range"),
    ("daily-activity", {"from": "2026-09-22T00:00:00Z", "to": "2026-09-22T00:00:00Z"}, "bad_range"),
    ("daily-activity", {"to": "2626-09-22T00:00:00Z"}, "not_over"),
    ("daily-activity", {"from": "2020-09-22T00:00:00Z"}, "range_too_long"),
    ("long-driving-sessions", {"from": "2026-09-22T00:00:00Z", "to": "2026-09-22T01:00:00Z"}, "bad_range"),
    ("long-driving-sessions", {"to": "1970-01-01T00:00:00Z"}, "bad_range"),
    ("daily-activity", {"cursor": "x"}, "bad_cursor"),
    ("daily-activity", {"max_age_s": 5}, "not_taken"),
    ("low-fuel", {"max_age_s": -5}, "invalid_parameter"),
    ("low-fuel", {"limit": 0}, "invalid_parameter"),
]


def test_what_cannot_be_answered_is_told_with_its_reason(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north")) as client:
        for name, said, code in REFUSED:
            answer = client.get(f"/api/v1/questions/{name}", params=said)
            assert answer.status_code in (404, 422) and answer.json()["code"] == code, (name, said)
            assert answer.json()["detail"]


def get(client: httpx.Client, path: str, **said: Any) -> dict[str, Any]:
    answer = client.get(path, params=said)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body
