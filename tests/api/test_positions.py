"""Where the fleet is: told positions, standing places, unknown ones; nobody sees another tenant's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from contracts.errors import Rejected
from contracts.signals import catalogue
from infra.enrol import Enrolment, enrol
from tests.api.fix_api import AHEAD, SPEED, Fleet, Server

LATITUDE, LONGITUDE = (
    catalogue().by_path(f"Vehicle.CurrentLocation.{name}").number for name in ("Latitude", "Longitude")
)


def test_columns_tell_where_everything_is(fleet: Fleet, server: Server) -> None:
    now = datetime.now(UTC) + AHEAD
    fleet.enrol(Enrolment("north-t1", "north", "Hill 1", "turbine", place=(49.03, 8.47)))
    fleet.latest("north-1", LATITUDE, now - timedelta(seconds=2), 49.0131)
    fleet.latest("north-1", LONGITUDE, now - timedelta(seconds=2), 8.4044)
    fleet.latest("north-1", SPEED.number, now, 48.5)
    fleet.latest("north-2", SPEED.number, now - timedelta(hours=1), 3.0)
    with server.client(fleet.key("north")) as client:
        body = client.get("/api/v1/positions").json()
    assert {len(column) for name, column in body.items() if name != "as_of"} == {4}
    of = {
        name: {key: column[at] for key, column in body.items() if key != "as_of"}
        for at, name in enumerate(body["name"])
    }
    assert (of["Car 1"]["latitude"], of["Car 1"]["longitude"], of["Car 1"]["speed"]) == (49.0131, 8.4044, 48.5)
    assert of["Car 1"]["state"] == "live" and of["Car 1"]["position_at"] < of["Car 1"]["measured_at"]
    assert (of["Hill 1"]["latitude"], of["Hill 1"]["longitude"]) == (49.03, 8.47)
    assert of["Hill 1"]["state"] == "no_data" and of["Hill 1"]["position_at"] is None
    assert of["Car 2"]["latitude"] is None and of["Car 2"]["state"] == "silent"
    assert "Turbine 1" not in of


def test_a_place_stays_when_the_asset_is_enrolled_again_and_is_on_earth(fleet: Fleet) -> None:
    fleet.enrol(Enrolment("north-t1", "north", "Hill 1", "turbine", place=(49.03, 8.47)))
    fleet.enrol(Enrolment("north-t1", "north", "Hill 1", "turbine"))
    with psycopg.connect(fleet.dsn) as connection:
        row = connection.execute("SELECT latitude, longitude FROM assets WHERE name = 'Hill 1'").fetchone()
        assert row == (49.03, 8.47)
        with pytest.raises(Rejected, match="bad_place"):
            enrol(connection, [Enrolment("north-t2", "north", "Hill 2", "turbine", place=(91.0, 0.0))])
