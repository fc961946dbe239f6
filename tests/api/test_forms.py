"""Readings and windows in every form that Accept can ask for: the same values, with unit and quality, harmless."""

from __future__ import annotations

import csv
import http.client
import io
import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import parts
from api.errors import NotAcceptable, StoreUnavailable
from api.exports import tag_of
from api.forms import FORMS, Form, choose, disposition
from api.queries import archive
from api.tables import FORMULA_STARTS, READINGS, encoder, harmless
from contracts.packet import Quality
from infra.enrol import Enrolment
from tests.api.fix_api import PATIENCE_S, RPM, SPEED, Fleet, Server, api_settings, running

NOW = datetime.now(UTC).replace(microsecond=0)
START = NOW - timedelta(hours=2)
EVIL = '=1+cmd|"x"'
Rows = list[dict[str, Any]]


def read_csv(body: bytes) -> Rows:
    return [
        row | {"value": float(row["value"]) if row["value"] else None}
        for row in csv.DictReader(io.StringIO(body.decode()))
    ]


def read_arrow(body: bytes) -> Rows:
    return _plain(pa.ipc.open_stream(body).read_all())


def read_parquet(body: bytes) -> Rows:
    return _plain(pq.read_table(io.BytesIO(body)))


def _plain(table: pa.Table) -> Rows:
    return [row | {"measured_at": told(row["measured_at"])} for row in table.to_pylist()]


def told(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


READERS: dict[Form, Callable[[bytes], Rows]] = {
    Form.NDJSON: lambda body: [json.loads(line) for line in body.splitlines()],
    Form.CSV: read_csv, Form.ARROW: read_arrow, Form.PARQUET: read_parquet,
}  # fmt: skip


@pytest.fixture
def car(fleet: Fleet) -> Fleet:
    """An asset whose name is a formula, with a value that is no number and one out of range."""
    fleet.enrol(Enrolment("north-9", "north", EVIL, "car"))
    for at in range(10):
        value, quality = (float("nan"), Quality.NOT_FINITE) if at == 3 else (at - 4.5, 0)
        moment = START + timedelta(seconds=at)
        fleet.packet("north-9", moment, [(SPEED.number, 0, value, quality), (RPM.number, 250, 900.0 + at, 0)])
    for signal in (SPEED, RPM):
        fleet.latest("north-9", signal.number, START, 1.0)
    fleet.window("north-9", SPEED.number, START, [100, 300])
    fleet.window("north-9", SPEED.number, START + timedelta(seconds=20), [500])
    return fleet


def question(**more: Any) -> dict[str, Any]:
    asked = {"signal": SPEED.path, "from": START.isoformat(), "to": (NOW - timedelta(hours=1)).isoformat(), **more}
    return {name: value for name, value in asked.items() if value is not None}


def get(client: httpx.Client, form: Form, path: str = "readings", **more: Any) -> httpx.Response:
    address = path if path.startswith("/") else f"/api/v1/assets/{EVIL}/{path}"
    return client.get(address, params=question(**more), headers={"Accept": form.value.media})


def test_every_form_tells_the_same_readings(car: Fleet, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PAGE_ROWS", 3)  # several parts
    with server.client(car.key("north")) as client:
        pages = client.get(f"/api/v1/assets/{EVIL}/readings", params=question()).json()
        for form in FORMS[1:]:
            same_readings(form, get(client, form), pages["items"])
            same_windows(form, get(client, form, "windows", width_s=10))


def same_readings(form: Form, answer: httpx.Response, items: Rows) -> None:
    assert answer.headers["content-type"].startswith(form.value.media)
    assert f'.{form.value.suffix}"' in answer.headers["content-disposition"]
    rows = READERS[form](answer.content)
    assert [(row["value"], row["quality"]) for row in rows] == [(one["value"], one["quality"]) for one in items]
    assert [row["measured_at"] for row in rows] == [told(datetime.fromisoformat(one["measured_at"])) for one in items]
    assert rows[3]["value"] is None and rows[3]["quality"] == "not_finite" and rows[0]["value"] == -4.5
    assert {row["unit"] for row in rows} == {"km/h"}
    assert {row["asset"] for row in rows} == {"'" + EVIL if form is Form.CSV else EVIL}


def same_windows(form: Form, answer: httpx.Response) -> None:
    if form is Form.CSV:
        rows: Rows = list(csv.DictReader(io.StringIO(answer.text)))
    elif form is Form.NDJSON:
        rows = READERS[form](answer.content)
    elif form is Form.ARROW:
        rows = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    else:
        rows = pq.read_table(io.BytesIO(answer.content)).to_pylist()
    assert [float(row["mean"]) for row in rows] == [2.0, 5.0]
    assert [int(row["n"]) for row in rows] == [2, 1] and rows[0]["unit"] == "km/h"
    assert str(rows[1]["stddev"]) in ("", "None")
    assert [str(row["closed"]).lower() for row in rows] == ["true", "true"]


def test_a_file_of_all_signals_and_a_page_of_them(car: Fleet, server: Server) -> None:
    with server.client(car.key("north")) as client:
        whole = READERS[Form.PARQUET](get(client, Form.PARQUET, "/api/v1/readings", asset=EVIL, signal=None).content)
        items: Rows = []
        cursor = None
        while True:
            page = client.get("/api/v1/readings", params=question(asset=EVIL, signal=None, limit=4, cursor=cursor))
            items += page.raise_for_status().json()["items"]
            cursor = page.json()["next"]
            if cursor is None:
                break
    assert [row["signal"] for row in whole] == [SPEED.path] * 10 + [RPM.path] * 10
    key = ("signal", "value", "seq", "unit")
    assert [[row[name] for name in key] for row in items] == [[row[name] for name in key] for row in whole]


def test_a_page_as_a_file_says_where_it_goes_on(car: Fleet, server: Server) -> None:
    with server.client(car.key("north")) as client:
        first = get(client, Form.CSV, limit=6)
        rest = get(client, Form.CSV, limit=6, cursor=first.headers["next-cursor"])
    assert 'rel="next"' in first.headers["link"]
    assert [len(read_csv(one.content)) for one in (first, rest)] == [6, 4]
    assert "next-cursor" not in rest.headers


def test_a_range_that_has_ended_is_not_sent_twice_until_it_changes(car: Fleet, server: Server) -> None:
    with server.client(car.key("north")) as client:
        for form in (Form.JSON, Form.CSV):
            for path in ("readings", "windows"):
                first = get(client, form, path, width_s=10)
                tag = first.headers["etag"]
                assert first.headers["cache-control"] == "private, no-cache" and "Accept" in first.headers["vary"]
                address = f"/api/v1/assets/{EVIL}/{path}"
                known = {"Accept": form.value.media, "If-None-Match": f'"x", {tag}'}
                again = client.get(address, params=question(width_s=10), headers=known)
                assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        tags = [get(client, form).headers["etag"] for form in FORMS]
        assert len(set(tags)) == len(FORMS)
        car.packet("north-9", START + timedelta(minutes=5), [(SPEED.number, 0, 77.0, 0)])  # late
        car.window("north-9", SPEED.number, START + timedelta(minutes=5), [7700])
        assert not {get(client, form).headers["etag"] for form in FORMS} & set(tags)
        assert get(client, Form.CSV, "windows", width_s=10).headers["etag"] != tag
        open_range = client.get(f"/api/v1/assets/{EVIL}/readings", params={"signal": SPEED.path})
        assert "etag" not in open_range.headers


def test_accept_in_several_lines_is_one_list(car: Fleet, server: Server) -> None:
    """RFC 9110 5.3: a header field's lines are joined with commas; which line comes first says nothing."""
    at = httpx.URL(server.base_url)
    for lines in (("application/json;q=0.5", "text/csv"), ("text/csv", "application/json;q=0.5"), ("", "text/csv")):
        connection = http.client.HTTPConnection(at.host, at.port or 80, timeout=PATIENCE_S)
        with closing(connection):
            address = httpx.URL(f"/api/v1/assets/{EVIL}/readings", params=question())
            connection.putrequest("GET", str(address), skip_accept_encoding=True)
            connection.putheader("Authorization", f"Bearer {car.key('north')}")
            for line in lines:
                connection.putheader("Accept", line)
            connection.endheaders()
            told = connection.getresponse()
            assert (told.status, told.headers.get_content_type()) == (200, "text/csv"), lines


def test_what_cannot_be_had_is_told_with_the_list(car: Fleet, server: Server) -> None:
    with server.client(car.key("north")) as client:
        refused = client.get(
            f"/api/v1/assets/{EVIL}/readings", params=question(), headers={"Accept": "application/xml, image/*"}
        )
        assert (refused.status_code, refused.json()["code"]) == (406, "not_acceptable")
        assert all(form.value.media in refused.json()["detail"] for form in FORMS)
        assert get(client, Form.CSV, "/api/v1/readings", asset="nobody").json()["code"] == "no_such_asset"


def test_exports_have_a_bound_and_seats(car: Fleet) -> None:
    hour = START.replace(minute=0, second=0)
    car.window("north-9", SPEED.number, hour + timedelta(hours=1), [1] * 50, width_s=3600)
    with running(api_settings(car, export_rows=40)) as server, server.client(car.key("north")) as client:
        assert get(client, Form.CSV, to=NOW.isoformat()).json()["code"] == "too_many_rows"
    with running(api_settings(car, exports_per_key=1)) as server, server.client(car.key("north")) as client:
        for _ in range(3):
            assert get(client, Form.CSV).status_code == 200  # each gave its seat back
            assert get(client, Form.CSV, "/api/v1/readings", asset="nobody").status_code == 404


def test_a_fault_in_the_middle_breaks_off_instead_of_looking_whole(
    car: Fleet, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PAGE_ROWS", 3)
    asked = []

    async def away(*question: Any) -> Any:
        asked.append(question)
        if len(asked) > 2:
            raise StoreUnavailable("the store went away")
        return await real(*question)

    real = archive.read_joined
    monkeypatch.setattr(parts, "read_joined", away)
    with server.client(car.key("north")) as client, pytest.raises(httpx.RemoteProtocolError):
        get(client, Form.CSV)
    assert len(asked) == 3


@given(st.text(max_size=20))
def test_no_text_begins_like_a_formula(text: str) -> None:
    assert not harmless(text).startswith(FORMULA_STARTS)
    assert harmless(text).removeprefix("'") == text.removeprefix("'")
    made = encoder(Form.CSV, READINGS)
    columns: dict[str, list[Any]] = {name: [1] for name in READINGS} | {
        name: [text] for name, kind in READINGS.items() if kind == "text"
    }
    body = (made.head() + made.part(columns)).decode()
    (row,) = csv.DictReader(io.StringIO(body, newline=""))
    assert row["asset"] == harmless(text)


@given(st.floats(allow_nan=False) | st.none(), st.integers(0, 4_000_000_000_000))
def test_values_and_times_survive_every_form(value: float | None, ms: int) -> None:
    columns: dict[str, list[Any]] = {name: ["x"] for name in READINGS}
    columns |= {"value": [value], "measured_at": [ms], "boot_epoch": [1], "seq": [2**40]}
    for form, read in READERS.items():
        made = encoder(form, READINGS)
        (row,) = read(made.head() + made.part(columns) + made.tail())
        if value is None or abs(value) != float("inf"):
            assert row["value"] == value
        assert datetime.fromisoformat(row["measured_at"]) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            milliseconds=ms
        )
        assert int(row["seq"]) == 2**40


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, Form.JSON), ("", Form.JSON), ("*/*", Form.JSON), ("text/*", Form.CSV), ("TEXT/CSV", Form.CSV),
        ("application/json;q=0.5, text/csv", Form.CSV), ("text/csv;q=0.4,*/*;q=0.5", Form.JSON),
        ("application/json;q=0, */*", Form.NDJSON), ("text/html,*/*;q=0.8", Form.JSON),
        ("application/vnd.apache.parquet", Form.PARQUET), ("text/csv;q=nonsense, application/x-ndjson", Form.NDJSON),
    ],
)  # fmt: skip
def test_accept_is_read_as_the_standard_says(accept: str | None, form: Form) -> None:
    assert choose(accept) is form


@given(st.text(max_size=60))
def test_any_accept_header_has_an_answer_or_a_refusal(accept: str) -> None:
    try:
        assert choose(accept) in FORMS
    except NotAcceptable as error:
        assert "text/csv" in error.detail


def test_names_of_downloads_are_plain_and_whole() -> None:
    assert disposition("Car 1", Form.CSV) == "attachment; filename=\"Car-1.csv\"; filename*=UTF-8''Car%201.csv"
    assert '"; x' not in disposition('a"; x="', Form.CSV) and "\n" not in disposition("a\r\nb", Form.CSV)
    assert tag_of("a", 1) != tag_of("a1")
