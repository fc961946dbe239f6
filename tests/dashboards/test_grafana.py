"""Boards as code: every panel's SQL answers on a real store, uids stay, units have names, sync tells drift.

The server is played by a small stand-in that answers as Grafana's HTTP API is documented; the boards were not run
against a Grafana server, since none can be installed here.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from contracts.signals import catalogue
from contracts.tables import ROLE_READER
from dashboards.grafana.boards import BOARDS
from dashboards.grafana.panels import DATASOURCE_UID, grafana_unit
from dashboards.grafana.sync import GrafanaError, Server, compare, plan, sync
from infra.cli.grafana import app
from infra.enrol import Enrolment
from tests.api.fix_api import RPM, SPEED, Fleet

MADE = [make() for make in BOARDS]
PANELS = [(board, panel) for board in MADE for panel in board["panels"]]
POWER = catalogue().by_path("WindTurbine.WTUR.W")
each_board = pytest.mark.parametrize("board", MADE, ids=lambda board: board["uid"])
each_panel = pytest.mark.parametrize(
    ("board", "panel"), PANELS, ids=[f"{board['uid']}-{panel['id']}" for board, panel in PANELS]
)


KNOWN = {"$__timeFilter", "$__timeGroupAlias", "$__timeFrom", "$__interval", "$__interval_ms"}


def plain(sql: str, **chosen: str) -> str:
    """What Grafana's PostgreSQL data source sends for our macros, as documented, for the last hour.

    It knows no other macro, and it replaces ``$__interval`` also where a longer name begins with it. A variable
    without a format of its own is quoted if it takes several values: here none goes without.
    """
    assert set(re.findall(r"\$__\w+", sql)) <= KNOWN
    sql = re.sub(r"\$__timeFilter\(([^)]+)\)", r"\1 BETWEEN now() - interval '1 hour' AND now()", sql)
    sql = re.sub(
        r"\$__timeGroupAlias\(([^,]+), *\$__interval(?:, (?:NULL|0))?\)",
        r'floor(extract(epoch FROM \1) / 10) * 10 AS "time"', sql,
    )  # fmt: skip
    sql = re.sub(r"\$__timeFrom\(\)", "'" + (datetime.now(UTC) - timedelta(hours=1)).isoformat() + "'", sql)
    sql = sql.replace("$__interval_ms", "10000").replace("$__interval", "10s")
    for name, value in chosen.items():
        sql = sql.replace("${" + name + ":sqlstring}", "'" + value.replace("'", "''") + "'")
        sql = sql.replace("${" + name + ":raw}", value)
    assert "$" not in sql
    return sql


@each_board
def test_a_board_has_its_fixed_uid_and_nothing_overlaps(board: dict[str, Any]) -> None:
    assert re.fullmatch(r"fleetstream-[a-z]+", board["uid"])
    assert {b["uid"] for b in MADE} == {f"fleetstream-{n}" for n in ("fleet", "asset", "delivery", "pipeline")}
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 0
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
    for variable in board["templating"]["list"]:
        assert variable["datasource"]["uid"] == DATASOURCE_UID


@each_panel
def test_a_panel_says_what_it_shows_in_which_unit_from_where(board: dict[str, Any], panel: dict[str, Any]) -> None:
    assert panel["title"] and panel["description"].endswith(".")
    assert panel["datasource"]["uid"] == DATASOURCE_UID == panel["targets"][0]["datasource"]["uid"]
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["noValue"] == "–", "nothing is never shown as zero"
    assert defaults["unit"]
    if panel["type"] == "timeseries" and defaults["custom"]["drawStyle"] == "line":
        assert not defaults["custom"]["spanNulls"]
        sql = panel["targets"][0]["rawSql"]
        if "$__timeGroup" in sql:  # points may be hours apart: only the query knows what is a gap
            assert re.search(r"\$__interval, (NULL|0)\)", sql) and not defaults["custom"]["insertNulls"]
        else:
            assert "width_s = 60" in sql and defaults["custom"]["insertNulls"] > 60_000


def test_every_unit_of_the_catalogue_has_a_grafana_unit() -> None:
    for signal in catalogue():
        unit = grafana_unit(signal.unit)
        assert re.fullmatch(r"[A-Za-z0-9]+", unit) or unit == f"suffix: {signal.unit}"
    assert grafana_unit("km/h") == "velocitykmh" and grafana_unit("m^3/h") == "suffix: m^3/h"


@pytest.fixture
def seeded(fleet: Fleet) -> Fleet:
    """Something for every panel: values, windows (one corrected), packets, ledger rows, letters."""
    now = datetime.now(UTC)
    for n in range(3):
        fleet.packet("north-1", now - timedelta(minutes=2, seconds=n), [(SPEED.number, 0, 50.0 + n, 0)])
    fleet.packet("south-1", now - timedelta(seconds=5), [(POWER.number, 0, 1500.0, 0)])
    fleet.latest("north-1", SPEED.number, now, 52.0)
    fleet.latest("north-2", RPM.number, now - timedelta(hours=1), 900.0)
    start = now.replace(second=0, microsecond=0) - timedelta(minutes=5)
    for width in (10, 60):
        fleet.window("north-1", SPEED.number, start, [5000, 5200], width)
        fleet.window("south-1", POWER.number, start, [1500000], width)
    for number, value in ((9001, 12_000), (9002, 90_000_000), (9004, 3)):  # a process of the platform, as an asset
        fleet.window("south-1", number, start, [value], 60)
    fleet.execute("UPDATE window_aggregates SET late_minutes = '{29000000}' WHERE signal = %s", SPEED.number)
    key, tenant = fleet.devices["north-1"], fleet.tenants["north"]
    fleet.execute("INSERT INTO seen_ranges VALUES (%s, 1, 7, %s, '{[1,3),[4,6)}', 4, 4, 2)", key, tenant)
    topic = "00000000-0000-0000-0000-000000000001"
    fleet.insert("quarantined", {
        "topic_id": topic, "kafka_partition": 0, "kafka_offset": 1, "topic": "t", "tenant_id": tenant,
        "device_key": key, "reason": "bad_body", "received_at": now, "bytes": b"x",
    })  # fmt: skip
    fleet.insert("refused", {
        "topic_id": topic, "kafka_partition": 0, "kafka_offset": 2, "tenant_id": tenant, "device": "north-1",
        "reason": "bad_crc", "detail": "", "mqtt_topic": "v1/north-1/up/live", "received_at": now, "bytes": b"y",
    })  # fmt: skip
    return fleet


NORTH = {"tenant": "north", "asset": "Car 1", "signal": SPEED.path}


def chosen_for(panel: dict[str, Any]) -> dict[str, str]:
    """The board's variables; turbines belong to the other tenant."""
    return NORTH | ({"tenant": "south"} if panel["title"] == "Power" else {})


def answer_of(dsn: str, title: str, **chosen: str) -> list[tuple[Any, ...]]:
    """Rows of the panel with this title."""
    (panel,) = (panel for _, panel in PANELS if panel["title"] == title)
    with psycopg.connect(dsn) as reader:
        return reader.execute(plain(panel["targets"][0]["rawSql"], **chosen).encode()).fetchall()


def test_tenants_and_the_platform_are_kept_apart(seeded: Fleet, role_dsn: Callable[[str], str]) -> None:
    dsn = role_dsn(ROLE_READER)
    assert answer_of(dsn, "Assets", **NORTH) == [(2,)]
    seeded.enrol(Enrolment("south-9", "south", "Car 1", "car"), Enrolment("platform-api", "platform", "api", "process"))
    seeded.latest("south-9", SPEED.number, datetime.now(UTC), 99.0)
    assert answer_of(dsn, "Assets", **NORTH) == [(2,)]
    assert [row[1] for row in answer_of(dsn, "Now", **NORTH)] == [52.0], "two tenants have a Car 1"
    (tenants,) = MADE[0]["templating"]["list"]
    with psycopg.connect(dsn) as reader:
        assert ("platform",) not in reader.execute(tenants["query"].encode()).fetchall()


def test_cores_after_a_gap_are_not_those_of_a_minute(seeded: Fleet, role_dsn: Callable[[str], str]) -> None:
    """A process that was not measured for ten minutes and cost 120 s of them had 0.2 cores, not 2."""
    start = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)
    for minutes, seconds in ((0, 100), (1, 106), (11, 226)):
        cpu = catalogue().by_number(9001)
        seeded.window("north-2", 9001, start + timedelta(minutes=minutes), [round(seconds / cpu.resolution)], 60)
    told = [row[2] for row in answer_of(role_dsn(ROLE_READER), "Processor") if row[1] == "Car 2"]
    assert told == [None, pytest.approx(0.1), pytest.approx(0.2)]


def test_the_age_of_the_last_row_grows_beyond_a_day(seeded: Fleet, role_dsn: Callable[[str], str]) -> None:
    """A dash would look like no trouble at all."""
    dsn = role_dsn(ROLE_READER)
    assert answer_of(dsn, "Since the last row")[0][0] < 3_600
    seeded.execute("DELETE FROM packet_rows")
    seeded.execute("UPDATE latest_values SET received_at = now() - interval '3 days'")
    assert float(answer_of(dsn, "Since the last row")[0][0]) == pytest.approx(3 * 86_400, abs=600)


def test_every_panel_s_sql_answers_for_the_read_only_role(seeded: Fleet, role_dsn: Callable[[str], str]) -> None:
    with psycopg.connect(role_dsn(ROLE_READER), autocommit=True) as reader:
        for board, panel in PANELS:
            chosen = chosen_for(panel)
            answer = reader.execute(plain(panel["targets"][0]["rawSql"], **chosen).encode())
            columns = [column.name for column in answer.description or ()]
            rows = answer.fetchall()
            assert rows, f"{board['uid']}: {panel['title']} shows nothing of a store that has it"
            if panel["type"] == "timeseries":
                assert columns[0] == "time" and len(columns) > 1
            for override in panel["fieldConfig"]["overrides"]:
                assert override["matcher"]["options"] in columns, "a unit for a column that is not there"
        for board in MADE:
            for variable in board["templating"]["list"]:
                assert reader.execute(plain(variable["query"], **NORTH).encode()).fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("DELETE FROM packet_rows")


class StandIn:
    """Answers like Grafana's HTTP API for folders, data sources and dashboards; keeps what it was told."""

    def __init__(self, datasources: set[str]) -> None:
        self.datasources, self.folders, self.boards = datasources, dict[str, str](), dict[str, dict[str, Any]]()
        self.writes = 0
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, _, kind, *rest = self.path.split("/")
                found = stand_in.find(kind, rest[-1])
                self.say(404 if found is None else 200, found or {"message": "not found"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.headers["Authorization"] != "Bearer sesame":
                    self.say(401, {"message": "Invalid API key"})
                else:
                    self.say(200, stand_in.write(self.path, body))

            def say(self, status: int, body: dict[str, Any]) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def find(self, kind: str, uid: str) -> dict[str, Any] | None:
        if kind == "datasources":
            return {"uid": uid} if uid in self.datasources else None
        if kind == "folders":
            return {"uid": uid} if uid in self.folders else None
        board = self.boards.get(uid)
        return None if board is None else {"meta": {"slug": uid}, "dashboard": board}

    def write(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        if path == "/api/folders":
            self.folders[body["uid"]] = body["title"]
            return {"uid": body["uid"]}
        board = body["dashboard"]
        assert body["folderUid"] in self.folders
        self.boards[board["uid"]] = {**board, "id": len(self.boards) + 1, "version": self.writes}
        return {"status": "success", "uid": board["uid"]}


@pytest.fixture
def grafana() -> Iterator[StandIn]:
    stand_in = StandIn({DATASOURCE_UID})
    thread = threading.Thread(target=stand_in.http.serve_forever)
    thread.start()
    yield stand_in
    stand_in.http.shutdown()
    stand_in.http.server_close()
    thread.join()


def test_sync_writes_what_is_new_and_only_tells_what_was_edited_there(grafana: StandIn) -> None:
    server = Server(grafana.url, "sesame")
    assert {change.state for change in plan(MADE, server)} == {"new"} and grafana.writes == 0
    sync(MADE, server, overwrite=False)
    assert set(grafana.boards) == {board["uid"] for board in MADE} and set(grafana.folders) == {"fleetstream"}
    assert {change.state for change in plan(MADE, server)} == {"same"}
    grafana.boards["fleetstream-fleet"]["panels"][1]["title"] = "Ours"
    told = {change.uid: change for change in sync(MADE, server, overwrite=False)}
    assert told["fleetstream-fleet"].places == ("/panels/1/title",)
    assert grafana.boards["fleetstream-fleet"]["panels"][1]["title"] == "Ours"
    sync(MADE, server, overwrite=True)
    assert grafana.boards["fleetstream-fleet"]["panels"][1]["title"] == MADE[0]["panels"][1]["title"]


def test_sync_without_data_source_or_right_says_so_and_writes_nothing(grafana: StandIn) -> None:
    with pytest.raises(GrafanaError, match="401"):
        sync(MADE, Server(grafana.url, "wrong"), overwrite=False)
    grafana.datasources.clear()
    with pytest.raises(GrafanaError, match=DATASOURCE_UID):
        sync(MADE, Server(grafana.url, "sesame"), overwrite=False)
    assert grafana.writes == 0


def test_the_command_s_dry_run_exits_1_while_something_differs(grafana: StandIn, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("sesame\n")
    run = partial(CliRunner().invoke, app)
    arguments = ["sync", "--url", grafana.url, "--token-file", str(token)]
    dry = run([*arguments, "--dry-run", "--json"])
    assert dry.exit_code == 1 and {row["state"] for row in json.loads(dry.stdout)} == {"new"}
    assert run(arguments).exit_code == 0 and grafana.writes == len(MADE) + 1
    again = run([*arguments, "--dry-run"])
    assert again.exit_code == 0 and again.stdout.count("same ") == len(MADE)


def test_compare_ignores_what_the_server_gives() -> None:
    board = MADE[0]
    assert compare(board, {**board, "id": 7, "version": 12}).state == "same"
    assert compare(board, {**board, "title": "x"}).places == ("/title",)
    assert compare(board, None).state == "new"
