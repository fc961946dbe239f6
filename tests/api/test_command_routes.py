"""Commands over HTTP: who may ask, once per key, bounded, on the menu, one tenant's only, with their audit."""

from __future__ import annotations

import pytest

from api.auth import EVIDENCE
from api.keys import ROLES
from api.routes.commands import SENDERS
from tests.api.fix_api import Fleet, Server

PATH = "/api/v1/devices/north-1/commands"
PING = {"kind": "ping"}


def test_a_key_means_one_command(server: Server, fleet: Fleet) -> None:
    with server.client(fleet.key("north")) as client:
        first = client.post(PATH, json=PING, headers={"Idempotency-Key": "k"})
        again = client.post(PATH, json=PING, headers={"Idempotency-Key": "k"})
        other = client.post(PATH, json={"kind": "flush"}, headers={"Idempotency-Key": "k"})
        fresh = client.post(PATH, json=PING)
        assert (first.status_code, again.status_code, other.status_code, fresh.status_code) == (202, 200, 422, 202)
        assert other.json()["code"] == "key_reused"
        assert again.json()["command_id"] == first.json()["command_id"] != fresh.json()["command_id"]
        shown = client.get(first.headers["Location"]).json()
        assert shown["state"] == "queued"
        assert [(one["changed_by"], one["to_state"]) for one in shown["changes"]] == [(shown["asked_by"], "queued")]
        assert shown["asked_by"].startswith("key:")
        newest, older = client.get(PATH).json()["items"]
        assert (newest["command_id"], older["command_id"]) == (fresh.json()["command_id"], first.json()["command_id"])
        page = client.get("/api/v1/commands", params={"limit": 1}).json()
        rest = client.get("/api/v1/commands", params={"limit": 1, "cursor": page["next"]}).json()
        assert [one["command_id"] for one in page["items"] + rest["items"]] == [
            newest["command_id"], older["command_id"],
        ]  # fmt: skip
        assert rest["next"] is None
        assert client.get(PATH, params={"state": "done"}).json()["items"] == []


@pytest.mark.parametrize("role", [None, *ROLES])
def test_who_may_send_and_who_may_look(server: Server, fleet: Fleet, role: str | None) -> None:
    with server.client(fleet.key("north")) as client:
        command = client.post(PATH, json=PING).json()["command_id"]
    looks = 401 if role is None else 200 if role in EVIDENCE else 403
    with server.client(fleet.key("north", role) if role else None) as client:
        sends = 401 if role is None else 202 if role in SENDERS else 403
        assert client.post(PATH, json=PING).status_code == sends
        assert [client.get(path).status_code for path in (PATH, f"/api/v1/commands/{command}")] == [looks] * 2
    assert {"operator", "admin"} == SENDERS


def test_a_tenant_reaches_its_own_devices_only(server: Server, fleet: Fleet) -> None:
    with server.client(fleet.key("north")) as client:
        command = client.post(PATH, json=PING).json()["command_id"]
    with server.client(fleet.key("south", "admin")) as client:
        assert client.post(PATH, json=PING).status_code == 404
        assert client.get(PATH).status_code == 404
        assert client.get(f"/api/v1/commands/{command}").status_code == 404
        assert client.get("/api/v1/commands").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"kind": "dance"}, "kind"), ({"kind": "edr_receipt"}, "kind"),
        ({"kind": "ping", "arguments": {"n": 1}}, "arguments"),
        ({"kind": "sampling", "arguments": {"profile": "none"}}, "arguments"),
        ({"kind": "ping", "expires_in_s": 99_999_999}, "expires_in_s"),
    ],
)  # fmt: skip
def test_what_is_not_on_the_menu_is_told(server: Server, fleet: Fleet, body: dict[str, object], parameter: str) -> None:
    with server.client(fleet.key("north")) as client:
        answer = client.post(PATH, json=body)
        assert (answer.status_code, answer.json()["errors"][0]["parameter"]) == (422, parameter)
        assert {one["kind"] for one in client.get("/api/v1/command-kinds").json()["items"]} == {
            "ping", "flush", "resync", "sampling", "notice",
        }  # fmt: skip


def test_open_commands_of_a_device_are_bounded(server: Server, fleet: Fleet) -> None:
    with server.client(fleet.key("north")) as client:
        answers = [client.post(PATH, json=PING).status_code for _ in range(101)]
    assert answers == [202] * 100 + [429]
