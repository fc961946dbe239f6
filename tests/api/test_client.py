"""The client on a real server, its patience against faults, and the how-to pages' own code, run as it stands."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.client import ApiProblem, Client, Patience
from tests.api.fix_api import RPM, SPEED, Fleet, Server

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC).replace(microsecond=0)
PAGES = ("read-data-from-programs.md", "import-a-fleet.md")


@pytest.fixture
def driven(fleet: Fleet) -> Fleet:
    for at in range(6):
        moment = NOW - timedelta(minutes=10) + timedelta(seconds=at)
        fleet.packet("north-1", moment, [(SPEED.number, 0, 10.0 + at, 0), (RPM.number, 0, 900.0, 0)])
    fleet.latest("north-1", SPEED.number, NOW, 15.0)
    fleet.latest("north-1", RPM.number, NOW, 900.0)
    fleet.window("north-1", SPEED.number, NOW - timedelta(minutes=5), [1000, 2000], width_s=60)
    return fleet


def test_pages_tables_files_and_the_feed(driven: Fleet, server: Server, tmp_path: Path) -> None:
    since, to = NOW - timedelta(hours=1), NOW
    with Client(server.base_url, driven.key("north", "admin")) as client:
        assert [one["name"] for one in client.assets(search="car")] == ["Car 1", "Car 2", "Car 3"]
        assert {one["signal"] for one in client.latest("Car 1")["values"]} == {SPEED.path, RPM.path}
        assert [one["value"] for one in client.readings("Car 1", SPEED.path, since, to)] == [10.0 + n for n in range(6)]
        assert [one["mean"] for one in client.windows("Car 1", SPEED.path, since, to)] == [15.0]
        chart = client.series("Car 1", SPEED.path, since, to, source="readings")
        assert [one for one in chart["values"] if one is not None] == [10.0 + n for n in range(6)]
        assert "low-fuel" in {one["name"] for one in client.questions()}
        moved = client.ask("last-locations")
        assert moved["items"] == [] and moved["counted"]["vehicles"] == 3 and moved["complete"]
        frame = client.frame("Car 1", since, to)
        assert frame.groupby("signal", observed=True)["value"].count().to_dict() == {SPEED.path: 6, RPM.path: 6}
        client.save(tmp_path / "car.parquet", "Car 1", since, to, [SPEED.path])
        assert pq.read_table(tmp_path / "car.parquet").num_rows == 6 and len(list(tmp_path.iterdir())) == 1
        feed = client.feed(limit=4, wait_s=0)
        first = [next(feed) for _ in range(5)]
        rest = client.feed(first[2]["cursor"], limit=4, wait_s=0)
        assert [one["seq"] for one in first] == [1, 2, 3, 4, 5] and next(rest)["seq"] == 4
        assert client.set_group("Vans", ["Car 1"]) == {"name": "Vans", "assets": ["Car 1"]}
        with pytest.raises(ApiProblem) as refused:
            client.latest("Car 99")
        assert (refused.value.status, refused.value.code) == (404, "no_such_asset")


def test_it_waits_as_long_as_it_is_told_and_gives_up() -> None:
    answers: list[httpx.Response | Exception] = [
        httpx.Response(429, headers={"Retry-After": "7"}), httpx.Response(503), httpx.ConnectError("gone"),
        httpx.Response(200, json={"items": [{"name": "a"}], "next": None}),
    ]  # fmt: skip
    pauses: list[float] = []

    def answer(_: httpx.Request) -> httpx.Response:
        one: httpx.Response | Exception
        one = answers.pop(0) if answers else httpx.Response(503, json={"code": "store_unavailable", "detail": "away"})
        if isinstance(one, Exception):
            raise one
        return one

    transport = httpx.MockTransport(answer)
    with Client("http://x", "k", transport=transport, sleep=pauses.append, patience=Patience(4, 0.5)) as client:
        assert [one["name"] for one in client.assets()] == ["a"]
        assert pauses == [7.0, 1.0, 2.0]
        with pytest.raises(ApiProblem, match="store_unavailable"):
            client.latest("a")
        assert pauses[3:] == [0.5, 1.0, 2.0]


class BreaksOff(httpx.SyncByteStream):
    """A body that ends in the middle."""

    def __iter__(self) -> Iterator[bytes]:
        yield b'{"items": ['
        raise httpx.ReadError("reset by peer")


def test_a_body_that_breaks_off_is_asked_for_again_and_not_for_ever(tmp_path: Path) -> None:
    whole = httpx.Response(200, json={"items": [{"name": "a"}], "next": None})
    requests: list[httpx.Request] = []
    answers = [httpx.Response(200, stream=BreaksOff()), whole]

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return answers.pop(0) if answers else httpx.Response(200, stream=BreaksOff())

    pauses: list[float] = []
    transport = httpx.MockTransport(answer)
    with Client("http://x", "k", transport=transport, sleep=pauses.append, patience=Patience(3, 0.5)) as client:
        assert [one["name"] for one in client.assets()] == ["a"] and pauses == [0.5]
        with pytest.raises(httpx.ReadError):
            client.save(tmp_path / "file", "a", NOW - timedelta(hours=1), NOW)
    assert len(requests) == 2 + 3 and pauses == [0.5, 0.5, 1.0], "one budget, not one for each layer"
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({"Retry-After": "Sat, 21 Nov 2026 12:00:09 GMT", "Date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 9.0),
        ({"Retry-After": "Sat, 21 Nov 2026 12:00:09 GMT"}, 0.5),
        ({"Retry-After": "Sat, 21 Nov 2026 11:00:00 GMT", "Date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 0.5),
        ({"Retry-After": "nan"}, 0.5), ({"Retry-After": "-3"}, 0.5), ({"Retry-After": "12"}, 12.0),
    ],
)  # fmt: skip
def test_it_waits_until_the_date_it_is_told(headers: dict[str, str], pause_s: float) -> None:
    answers = [httpx.Response(503, headers=headers), httpx.Response(200, json={"items": [], "next": None})]
    pauses: list[float] = []
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    with Client("http://x", "k", transport=transport, sleep=pauses.append) as client:
        assert list(client.assets()) == [] and pauses == [pause_s]


def test_fleet_questions_are_asked_page_by_page() -> None:
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        more = None if "cursor" in asked[-1] else "c"
        return httpx.Response(200, json={"items": [len(asked)], "next": more, "complete": True})

    with Client("http://x", "k", transport=httpx.MockTransport(answer)) as client:
        told = client.ask("low-fuel", fleet="East", threshold=10.0)
    assert told == {"items": [1, 2], "next": None, "complete": True}
    said = {"fleet": "East", "threshold": "10.0"}
    assert asked == [said, said | {"cursor": "c"}]


def test_polars_is_handed_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars need not be installed here: a stand-in shows what it is given."""
    table = pa.table({"value": [1.0, None], "quality": ["good", "not_finite"]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stand_in = ModuleType("polars")
    stand_in.__dict__["from_arrow"] = lambda given: ("frame", given)
    monkeypatch.setitem(sys.modules, "polars", stand_in)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=sink.getvalue()))
    with Client("http://x", "k", transport=transport) as client:
        made, given = client.polars("a", NOW - timedelta(hours=1), NOW)
    assert made == "frame" and given.equals(table)


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_code_runs_as_it_stands(driven: Fleet, server: Server, page: str) -> None:
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks
    names = {"BASE": server.base_url, "KEY": driven.key("north", "admin"), "LAST": 6}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, page, "exec"), names)
    if page == PAGES[0]:
        assert names["table"].num_rows == 12 and len(names["frame"]) == 6  # type: ignore[attr-defined, arg-type]
        assert printed.getvalue().count("km/h") == 6
    else:
        assert names["vans"] == ["Van 8"] and "line 2" in printed.getvalue()
