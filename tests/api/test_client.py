"""The client on a real server, its patience against faults, and the how-to pages' own code, run as it stands."""

from __future__ import annotations

import contextlib
import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
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
