"""Every route, with no key, a bad key, a revoked key, another tenant's key, and each role; and every kind of error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from starlette.routing import Route

from api import wiring
from api.auth import EVIDENCE, TELEMETRY
from api.keys import ROLES, new_key
from api.middleware import MAX_BODY_BYTES
from api.wiring import build_app
from tests.api.fix_api import SPEED, Fleet, Server, api_settings, running

NAMES = {"{name}": "Car 1", "{question}": "low-fuel"}
QUESTIONS = {
    "/api/v1/assets/{name}/readings": {"signal": SPEED.path},
    "/api/v1/assets/{name}/windows": {"signal": SPEED.path},
    "/api/v1/assets/{name}/series": {"signal": SPEED.path},
    "/api/v1/readings": {"asset": "Car 1"},
}
ALLOWED = {
    "/api/v1/whoami": frozenset(ROLES),
    "/api/v1/signals": frozenset(ROLES),
    "/api/v1/assets": TELEMETRY,
    "/api/v1/assets/{name}/latest": TELEMETRY,
    "/api/v1/assets/{name}/readings": TELEMETRY,
    "/api/v1/assets/{name}/windows": TELEMETRY,
    "/api/v1/assets/{name}/series": TELEMETRY,
    "/api/v1/positions": TELEMETRY,
    "/api/v1/questions": TELEMETRY,
    "/api/v1/questions/{question}": TELEMETRY,
    "/api/v1/readings": TELEMETRY,
    "/api/v1/feed/readings": TELEMETRY,
    "/api/v1/groups": TELEMETRY,
    "/api/v1/stream": TELEMETRY,
    "/api/v1/ledger": EVIDENCE,
    "/api/v1/ledger/drops": EVIDENCE,
    "/api/v1/ledger/gaps": EVIDENCE,
    "/api/v1/command-kinds": frozenset(ROLES),
    "/api/v1/commands": EVIDENCE,
    "/api/v1/quarantine": EVIDENCE,
    "/api/v1/dead-letters": EVIDENCE,
    "/api/v1/findings": TELEMETRY,
    "/api/v1/alerts": EVIDENCE,
    "/api/v1/alerts/precision": EVIDENCE,
    "/api/v1/work-orders": EVIDENCE,
    "/api/v1/alert-channels": EVIDENCE,
    "/api/v1/assets/{name}/care": TELEMETRY,
}
CUSTODY = {
    f"/api/v1/edr/{path}"
    for path in (
        "notices", "notices/{event}/position", "records", "records/{record}", "records/{record}/report",
        "records/{record}/export", "records/{record}/attachments/{attachment}", "records/{record}/linkage", "custody",
    )
}  # fmt: skip
"""Open to every key and answered through the custody log: ``test_edr`` asks each of them as each role."""
COMMANDS = {"/api/v1/devices/{device}/commands", "/api/v1/commands/{command_id}"}
FLEET = {
    "/api/v1/groups/{group}", "/api/v1/fleet/import", "/api/v1/dead-letters/{letter}",
    "/api/v1/dead-letters/{letter}/resubmit",
}  # fmt: skip
"""Asked as each role in ``test_groups`` and ``test_letters``."""
"""Named by a device or a command that must exist: ``test_command_routes`` asks them as each role."""
ALERTS = {
    "/api/v1/findings/{finding_id}", "/api/v1/alerts/{alert_id}", "/api/v1/alerts/{alert_id}/transitions",
    "/api/v1/alerts/{alert_id}/work-order", "/api/v1/alert-channels/{channel_id}",
    "/api/v1/alert-channels/{channel_id}/deliveries",
}  # fmt: skip
"""Named by what must exist: ``test_alerts`` and ``test_courier`` ask them as several roles."""
PUBLIC = {"/livez", "/readyz", "/metrics", "/version", "/api/v1/openapi.json"}


def paths(fleet: Fleet) -> list[str]:
    app = build_app(api_settings(fleet))
    return sorted(app.openapi()["paths"]) + [route.path for route in app.routes if isinstance(route, Route)]


def ask(client: httpx.Client, path: str) -> httpx.Response:
    """One answer's head; streams are not read."""
    address = path
    for mark, name in NAMES.items():
        address = address.replace(mark, name)
    with client.stream("GET", address, params=QUESTIONS.get(path, {})) as response:
        if not response.headers["content-type"].startswith("text/event-stream"):
            response.read()
        return response


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert response.status_code == status == body["status"], body
    assert response.headers["content-type"] == "application/problem+json"
    assert body["type"] == f"urn:fleetstream:problem:{body['code']}" and body["title"] and body["detail"]
    return body


def test_no_route_is_forgotten(fleet: Fleet) -> None:
    assert set(paths(fleet)) == set(ALLOWED) | PUBLIC | CUSTODY | COMMANDS | FLEET | ALERTS


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer fsk_0123456789abcdef_short", "Basic YTpi", f"Bearer {new_key().text}"]
)
def test_without_a_valid_key_nothing_is_told(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, header: str | None) -> None:
    monkeypatch.setattr(wiring, "FAILURES_BURST", 1_000)  # one address asks every route here
    with running(api_settings(fleet)) as server, server.client() as client:
        client.headers.update({} if header is None else {"Authorization": header})
        for path in ALLOWED:
            response = ask(client, path)
            assert problem(response, 401)["code"] in ("no_key", "bad_key")
            assert response.headers["www-authenticate"].startswith("Bearer")


def test_revoked_and_expired_keys_are_refused(fleet: Fleet, server: Server) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    for key in (fleet.key("north", revoked_at=past), fleet.key("north", expires_at=past)):
        with server.client(key) as client:
            assert problem(ask(client, "/api/v1/assets"), 401)["code"] == "bad_key"


@pytest.mark.parametrize("role", ROLES)
def test_every_route_for_every_role(fleet: Fleet, server: Server, role: str) -> None:
    with server.client(fleet.key("north", role)) as client:
        for path, roles in ALLOWED.items():
            response = ask(client, path)
            if role in roles:
                assert response.status_code == 200, (path, response.text)
            else:
                assert problem(response, 403)["code"] == "role"


def test_another_tenant_s_key_sees_nothing_of_this_one(fleet: Fleet, server: Server) -> None:
    now = datetime.now(UTC)
    fleet.latest("north-1", SPEED.number, now, 50.0)
    fleet.packet("north-1", now, [(SPEED.number, 0, 50.0, 0)])
    fleet.window("north-1", SPEED.number, now, [1])
    fleet.execute(
        "INSERT INTO seen_ranges VALUES (%s, 1, 7, %s, '{[1,2)}', 1, 1, 0)", fleet.devices["north-1"],
        fleet.tenants["north"],
    )  # fmt: skip
    with server.client(fleet.key("south")) as client:
        for path in ALLOWED:
            response = ask(client, path)
            if "{name}" in path or path in QUESTIONS:
                assert problem(response, 404)["code"] == "no_such_asset"
            elif path not in ("/api/v1/stream", "/api/v1/signals"):
                assert "north" not in response.text and "Car" not in response.text
        assert client.get("/api/v1/ledger").json()["totals"]["stored_packets"] == 0


BAD_QUESTIONS = [
    ("/api/v1/assets", {"limit": 0}, "invalid_parameter", "limit"),
    ("/api/v1/assets", {"limit": 10_001}, "invalid_parameter", "limit"),
    ("/api/v1/assets", {"cursor": "!!"}, "bad_cursor", "cursor"),
    ("/api/v1/assets", {"cursor": "WyJsZWRnZXIiLCJhIiwxXQ"}, "bad_cursor", "cursor"),
    ("/api/v1/assets", {"signal": "Vehicle.Sped"}, "unknown_signal", "signal"),
    ("/api/v1/assets/Car 1/readings", {}, "invalid_parameter", "signal"),
    (
        "/api/v1/assets/Car 1/readings",
        {"signal": SPEED.path, "from": "2026-01-01T00:00:00"},
        "invalid_parameter",
        "from",
    ),
    (
        "/api/v1/assets/Car 1/readings",
        {"signal": SPEED.path, "from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"},
        "range_too_long",
        "from",
    ),
    (
        "/api/v1/assets/Car 1/readings",
        {"signal": SPEED.path, "from": "2026-02-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
        "bad_range",
        "from",
    ),
    ("/api/v1/assets/Car 1/windows", {"signal": SPEED.path, "to": "0001-01-01T00:00:00Z"}, "bad_range", "to"),
    ("/api/v1/assets/Car 1/windows", {"signal": SPEED.path, "width_s": 11}, "bad_width", "width_s"),
    (
        "/api/v1/assets/Car 1/windows",
        {"signal": SPEED.path, "cursor": "WyJ3aW5kb3dzIiwtNSwxXQ"},
        "bad_cursor",
        "cursor",
    ),
    ("/api/v1/stream", {"signal": "nothing"}, "unknown_signal", "signal"),
]


@pytest.mark.parametrize(("path", "question", "code", "parameter"), BAD_QUESTIONS)
def test_bad_questions_name_the_parameter(
    fleet: Fleet, server: Server, path: str, question: dict[str, Any], code: str, parameter: str
) -> None:
    with server.client(fleet.key("north")) as client:
        body = problem(client.get(path, params=question), 422)
    assert body["code"] == code and body["errors"][0]["parameter"] == parameter


def test_unknown_addresses_and_methods_are_problems_too(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north")) as client:
        assert problem(client.get("/api/v1/nothing"), 404)["code"] == "not_found"
        refused = client.post("/api/v1/assets", json={})
        assert problem(refused, 405)["code"] == "method_not_allowed" and refused.headers["allow"] == "GET"
        assert problem(client.get("/../../etc/passwd"), 404)
        assert problem(client.get("/api/v1/stream", headers={"Last-Event-ID": "x"}), 422)["code"] == "bad_event_id"


def test_a_body_that_is_too_large_is_not_taken(fleet: Fleet, server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        """A body without a length, which ends when nobody listens any more."""
        for _ in range(1_000):
            yield bytes(64 * 1024)

    address = "/api/v1/devices/north-1/commands"
    with server.client(fleet.key("north")) as client:
        told = client.post(address, content=bytes(MAX_BODY_BYTES + 1), headers={"Content-Type": "application/json"})
        assert problem(told, 413)["code"] == "body_too_large"
        with contextlib.suppress(httpx.TransportError):
            endless = client.post(address, content=pieces(), headers={"Content-Type": "application/json"})
            assert endless.status_code == 413
        assert client.get("/api/v1/whoami").status_code == 200


def test_the_sixth_of_five_requests_is_told_when_to_come_back(fleet: Fleet) -> None:
    with running(api_settings(fleet, rate_burst=5, rate_per_s=0.01)) as server:
        with server.client(fleet.key("north")) as client:
            codes = [client.get("/api/v1/signals").status_code for _ in range(5)]
            late = client.get("/api/v1/signals")
        assert codes == [200] * 5 and problem(late, 429) and int(late.headers["retry-after"]) >= 1
        with server.client(fleet.key("north")) as other:
            assert other.get("/api/v1/signals").status_code == 200


def test_guessing_keys_is_slowed_down(server: Server) -> None:
    with server.client(new_key().text) as client:
        codes: list[int] = []
        while 429 not in codes[20:]:  # what has flown back meanwhile may be guessed with, however slow this machine is
            codes.append(client.get("/api/v1/signals").status_code)
            assert len(codes) < 10_000
        metrics = client.get("/metrics").text
    assert codes[:20] == [401] * 20 and 429 in codes
    assert f'fleetstream_api_limited_total{{limit="failures"}} {codes.count(429)}.0' in metrics


@pytest.fixture
def away(fleet: Fleet) -> Iterator[Server]:
    """A server whose database does not exist."""
    with running(api_settings(fleet, dsn="host=127.0.0.1 port=1 user=nobody", pool_timeout_s=0.2)) as made:
        yield made


def test_without_a_database_it_says_so_and_lives(fleet: Fleet, away: Server) -> None:
    with away.client(fleet.key("north")) as client:
        assert client.get("/livez").status_code == 200
        assert problem(client.get("/api/v1/assets"), 503)["code"] == "store_unavailable"
        ready = client.get("/readyz")
        assert ready.status_code == 503 and ready.json()["reasons"]


def test_a_question_that_takes_too_long_is_ended(fleet: Fleet) -> None:
    with (
        running(api_settings(fleet, statement_timeout_ms=2_000)) as server,
        server.client(fleet.key("north")) as client,
    ):
        assert client.get("/api/v1/assets").status_code == 200
        with psycopg.connect(fleet.dsn) as connection:
            connection.execute("LOCK TABLE assets IN ACCESS EXCLUSIVE MODE")
            assert problem(client.get("/api/v1/assets"), 504)["code"] == "query_too_long"
        assert client.get("/api/v1/assets").status_code == 200


def test_openapi_names_keys_problems_and_examples(server: Server) -> None:
    with server.client() as client:
        schema = client.get("/api/v1/openapi.json").json()
    assert schema["openapi"].startswith("3.1")
    for path, roles in ALLOWED.items():
        operation = schema["paths"][path]["get"]
        assert roles and operation["security"] == [{"key": []}]
        assert set(operation["responses"]["429"]["content"]) == {"application/problem+json"}
    assert schema["components"]["schemas"]["LatestValue"]["examples"][0]["unit"] == "km/h"


def test_health_and_headers(fleet: Fleet, server: Server) -> None:
    with server.client(fleet.key("north")) as client:
        assert client.get("/readyz").json() == {"ready": True, "reasons": []}
        assert client.get("/version").json()["name"] == "fleetstream"
        answer = client.get("/api/v1/assets")
        page = client.get("/")
        metrics = client.get("/metrics").text
    assert answer.headers["cache-control"] == "no-store"
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    for response in (answer, page):
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
    assert 'fleetstream_api_requests_total{method="GET",route="/api/v1/assets",status="200"} 1.0' in metrics
