"""Messages about alerts reach real receivers at least once, signed, in order, in their hours, and none is lost."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anomaly.alerts.waiting import ATTEMPTS
from api.carriers import MailCarrier, MailServer, NotDelivered, WebhookCarrier, is_public, look_up, read_address
from api.courier import Courier
from api.queries.courier import CourierStore
from contracts.alert import AlertState
from contracts.commands import decode_command
from contracts.errors import Rejected
from contracts.webhook import DELIVERY_HEADER, SIGNATURE_HEADER, check_signature, sign
from tests.api.fix_alerts import Watchroom
from tests.api.fix_api import Fleet, Server, api_settings, running
from tests.api.receivers import Hook, Mailbox, http_receiver, mail_receiver

SENDER = "Fleetstream <alerts@fleet.example>"
V1 = "/api/v1"


class Post:
    """A watchroom with a courier that is moved by hand."""

    def __init__(self, room: Watchroom) -> None:
        self.room = room
        self.mail_port = 1

    def channel(self, kind: str, target: str = "", tenant: str = "north", **columns: Any) -> str:
        name = f"n-{len(self.room.rows('SELECT 1 FROM alert_channels')):016x}"
        self.room.fleet.insert("alert_channels", {
            "channel_id": name, "tenant_id": self.room.fleet.tenants[tenant], "name": name, "kind": kind,
            "target": target, "secret": "whsec_quiet" if kind == "webhook" else None, "created_by": "key:k", **columns,
        })  # fmt: skip
        return name

    def work(self, rounds: int = 1, spoil: Callable[[Courier], None] | None = None) -> None:
        async def run() -> None:
            mails = MailCarrier(MailServer("127.0.0.1", self.mail_port, SENDER, security="none"))
            hooks = WebhookCarrier(lambda: self.room.now_ms // 1000, private=True)
            store = CourierStore(self.room.fleet.sink_dsn)
            courier = Courier(store, hooks, mails, SENDER, lambda: self.room.now_ms, time.monotonic, self.room.metrics)
            assert await store.open()
            if spoil is not None:
                spoil(courier)
            try:
                for _ in range(rounds):
                    await courier.round()
            finally:
                await hooks.close()
                await store.close()

        asyncio.run(run())

    def states(self) -> list[tuple[Any, ...]]:
        return self.room.rows("SELECT state, attempts FROM alert_deliveries ORDER BY delivery_id")


@pytest.fixture
def post(fleet: Fleet) -> Post:
    return Post(Watchroom(fleet))


@pytest.fixture
def hook() -> Iterator[Hook]:
    with http_receiver() as made:
        yield made


@pytest.fixture
def box() -> Iterator[Mailbox]:
    with mail_receiver() as made:
        yield made


def test_a_webhook_is_signed_retried_and_sent_again_after_a_kill(
    post: Post, hook: Hook, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    post.channel("webhook", hook.address)
    post.channel("webhook", hook.address, tenant="south")
    post.room.find()
    post.room.work()
    hook.status = 302
    post.work(rounds=3)
    assert post.states() == [("waiting", 1)], "a redirect is no delivery; the next attempt waits"
    post.room.ahead_ms += 6_000
    hook.status = 200

    def dies(courier: Courier) -> None:
        async def die(*_: object) -> None:
            raise KeyError("killed")

        monkeypatch.setattr(courier.store, "write", die)

    with pytest.raises(KeyError):
        post.work(spoil=dies)
    post.work()
    assert post.states() == [("sent", 2)]
    assert len(hook.requests) == 3
    headers, body = hook.requests[-1]
    assert body == hook.requests[1][1] == hook.requests[0][1]
    assert len({one[DELIVERY_HEADER] for one, _ in hook.requests}) == 1, "a repeat is known by its number"
    check_signature("whsec_quiet", body, headers[SIGNATURE_HEADER], post.room.now_ms // 1000)
    told = json.loads(body)
    assert (told["tenant"], told["asset"], told["kind"], told["observed"]) == ("north", "Car 1", "opened", 118.5)
    assert headers["path"] == "/hook?a=1" and headers["Host"] == f"127.0.0.1:{hook.port}"
    assert "whsec" not in caplog.text and "/hook" not in caplog.text


def test_what_nobody_takes_is_dead_after_a_bounded_time_and_counted(post: Post, hook: Hook) -> None:
    hook.status = 500
    post.channel("webhook", hook.address)
    post.room.find()
    post.room.work()
    for _ in range(ATTEMPTS + 2):
        post.work()
        post.room.ahead_ms += 3_601_000
    assert post.states() == [("dead", ATTEMPTS)]
    assert len(hook.requests) == ATTEMPTS
    assert post.room.rows("SELECT last_error FROM deliveries") == [("HTTP status 500",)]
    assert "fleetstream_api_alert_deliveries_dead 1.0" in post.room.metrics.text().decode()


def test_a_channel_that_does_not_answer_rests_and_holds_up_no_other(post: Post, hook: Hook) -> None:
    with http_receiver() as silent:
        silent.status = 503
        post.channel("webhook", silent.address)
        post.channel("webhook", hook.address)
        for number in range(6):
            post.room.find(cause=f"c{number}", begun_s=number * 1_000, severity=4)
        post.room.work()
        post.work(rounds=3)
    assert len(hook.requests) == 6
    assert [json.loads(body)["cause"] for _, body in hook.requests] == [f"c{number}" for number in range(6)]
    assert len(silent.requests) == 1


def test_a_mail_says_what_was_seen_expected_and_what_to_do(post: Post, box: Mailbox) -> None:
    post.mail_port = box.port
    post.channel("email", "oncall@example.org")
    post.room.fleet.execute("UPDATE assets SET name = E'Car\\n1 \\u2602' WHERE name = 'Car 1'")
    post.room.find()
    post.room.work()
    box.refuses = True
    post.work()
    assert post.states() == [("waiting", 1)] and box.mails == []
    box.refuses = False
    post.room.ahead_ms += 6_000
    post.work()
    ((sender, recipients, text),) = box.mails
    assert (sender, recipients) == ("alerts@fleet.example", ["oncall@example.org"])
    mail = email.message_from_string(text, policy=email.policy.default)
    assert mail["Subject"] == "Car 1 ☂: cooling (warning)"
    body = mail.get_content()
    for line in ("Seen: 118.5 Celsius", "Expected: 84 to 96 Celsius", "Look at the coolant's level."):
        assert line in body
    assert mail["Message-ID"].endswith("@fleet.example>")


def test_quiet_hours_hold_back_what_can_wait_and_nothing_critical(post: Post, hook: Hook) -> None:
    now = datetime.fromtimestamp(post.room.now_ms / 1000, UTC)
    begin, end = ((now + timedelta(hours=hours)).time().replace(second=0, microsecond=0) for hours in (-1, 1))
    post.channel("webhook", hook.address, quiet_begin=begin, quiet_end=end)
    for number in range(5):
        post.room.find(cause=f"c{number}", begun_s=number * 1_000)
    post.room.find(cause="brakes", severity=4, begun_s=9_000)
    post.room.work()
    post.work(rounds=2)
    assert [json.loads(body)["cause"] for _, body in hook.requests] == ["brakes"]
    post.room.ahead_ms += 61 * 60_000
    post.work(rounds=3)
    assert len(hook.requests) == 6
    assert {state for state, _ in post.states()} == {"sent"}


def test_a_storm_disturbs_once_and_moves_of_people_never(post: Post, hook: Hook) -> None:
    post.channel("webhook", hook.address, min_severity=1)
    for number in range(8):
        post.room.find(cause=f"c{number}", begun_s=number)
        post.room.work()
    post.room.fleet.execute(
        "UPDATE alert_rows SET state = 'acknowledged', event_no = event_no + 1, change_kind = 'moved'"
        " WHERE root_id IS NULL"
    )
    post.work(rounds=4)
    causes = [json.loads(body)["cause"] for _, body in hook.requests]
    assert causes == ["c0"], "the second stood alone before the third made a storm of them, and was not sent yet"


def test_down_to_the_machine_as_a_command_once(post: Post) -> None:
    post.channel("device")
    post.room.find(severity=3)
    post.room.work()
    post.work(rounds=2)
    assert post.states() == [("sent", 1)]
    ((kind, arguments, asked_by, state),) = post.room.rows("SELECT kind, arguments, asked_by, state FROM commands")
    assert (kind, asked_by, state) == ("notice", "courier", "queued")
    assert arguments == {"text": "Car 1: cooling (alarm)", "severity": 3, "alert": post.room.alert()}


def test_a_server_makes_alerts_and_sends_them(post: Post, hook: Hook, kafka_bootstrap: str, topic_prefix: str) -> None:
    """The whole API process: a channel made over HTTP, a finding, its message, its delivery."""
    settings = api_settings(
        post.room.fleet, relay_dsn=post.room.fleet.sink_dsn, kafka_bootstrap=kafka_bootstrap,
        topic_prefix=topic_prefix, webhook_private=True,
    )  # fmt: skip
    with running(settings, with_relay=True) as server, server.client(post.room.fleet.key("north", "admin")) as admin:
        made = admin.post(f"{V1}/alert-channels", json={"name": "w", "kind": "webhook", "target": hook.address})
        assert made.status_code == 201
        secret, channel = made.json()["secret"], made.json()["channel"]["channel_id"]
        post.room.find()
        end_s = time.monotonic() + 120
        while not (
            rows := admin.get(f"{V1}/alert-channels/{channel}/deliveries", params={"state": "sent"}).json()["items"]
        ):
            assert time.monotonic() < end_s
        assert rows[0]["alert_id"] == post.room.alert()
        headers, body = hook.requests[0]
        check_signature(secret, body, headers[SIGNATURE_HEADER], int(time.time()))
        while post.room.rows("SELECT 1 FROM outbox WHERE topic = 'alerts' AND published_at IS NULL"):
            assert time.monotonic() < end_s
    assert [one.to_state for one in post.room.steps()] == [AlertState.NEW]


def test_channels_are_made_by_administrators_and_tell_no_secret(post: Post, server: Server) -> None:
    fleet = post.room.fleet
    quiet = {"begin": "22:00", "end": "06:00", "zone": "Europe/Berlin"}
    with closing(server.client(fleet.key("north", "admin"))) as admin:
        mail = {"name": "on call", "kind": "email", "target": "oncall@example.org", "quiet": quiet}
        made = admin.post(f"{V1}/alert-channels", json=mail)
        assert (made.status_code, made.json()["secret"]) == (201, None)
        again = admin.post(f"{V1}/alert-channels", json=mail)
        assert (again.status_code, again.json()["code"]) == (409, "name_taken")
        for kind, target in (
            ("webhook", "http://example.org/"), ("webhook", "https://u:p@example.org/"), ("email", "no mail"),
            ("email", "a@b\r\nBcc: c@d"), ("device", "x"), ("webhook", "ftp://example.org"),
        ):  # fmt: skip
            refused = admin.post(f"{V1}/alert-channels", json={"name": "n", "kind": kind, "target": target})
            assert (refused.status_code, refused.json()["code"]) == (422, "bad_target"), target
        bad = admin.post(f"{V1}/alert-channels", json={**mail, "quiet": {**quiet, "zone": "Mars/Crater"}})
        assert bad.status_code == 422
        hook = {"name": "hook", "kind": "webhook", "target": "https://example.org/x"}
        secret = admin.post(f"{V1}/alert-channels", json=hook).json()["secret"]
        listed = admin.get(f"{V1}/alert-channels")
        assert [one["name"] for one in listed.json()["items"]] == ["hook", "on call"]
        assert secret.startswith("whsec_") and secret not in listed.text
        channel = listed.json()["items"][1]
        assert channel["quiet"] == {"begin": "22:00:00", "end": "06:00:00", "zone": "Europe/Berlin", "through": 4}
        assert admin.delete(f"{V1}/alert-channels/{channel['channel_id']}").status_code == 204
        assert admin.delete(f"{V1}/alert-channels/{channel['channel_id']}").status_code == 404
        care = {"criticality": 2, "downtime_cost_per_day": 4_000.0, "visit_cost": 100.0, "currency": "EUR"}
        assert admin.get(f"{V1}/assets/Car%201/care").json()["criticality"] == 1
        assert admin.put(f"{V1}/assets/Car%201/care", json=care).json() == care
        assert admin.get(f"{V1}/assets/Car%201/care").json() == care
    with closing(server.client(fleet.key("south", "admin"))) as stranger:
        assert stranger.get(f"{V1}/alert-channels").json()["items"] == []
        assert stranger.get(f"{V1}/assets/Car%201/care").status_code == 404
    with closing(server.client(fleet.key("north", "maintenance"))) as technician:
        assert technician.post(f"{V1}/alert-channels", json=hook).status_code == 403


# -- pure ------------------------------------------------------------------------------------------------------------


def test_a_signature_is_of_this_body_this_secret_and_this_time() -> None:
    header = sign("s", b"body", 1_000)
    check_signature("s", b"body", header, 1_300)
    for secret, body, said, now_s in (
        ("t", b"body", header, 1_000), ("s", b"bodY", header, 1_000), ("s", b"body", header, 1_301),
        ("s", b"body", header.replace("t=1000", "t=1001"), 1_000), ("s", b"body", "", 1_000),
        ("s", b"body", "t=x,v1=y", 1_000), ("s", b"body", "t=²,v1=ä", 1_000),
    ):  # fmt: skip
        with pytest.raises(Rejected):
            check_signature(secret, body, said, now_s)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "fc00::1",
        "0.0.0.0",
    ],
)
def test_addresses_of_our_own_are_not_public(address: str) -> None:
    assert not is_public(address)
    literal = f"[{address}]" if ":" in address else address
    with pytest.raises(NotDelivered, match="private network"):
        asyncio.run(look_up(f"https://{literal}/x", private=False))


def test_public_addresses_and_what_an_address_may_be() -> None:
    assert is_public("93.184.216.34") and is_public("2606:2800:220:1::1")
    assert read_address("https://example.org", False) == ("https", "example.org", 443, "/")
    assert read_address("http://h:81/p?q=1", True) == ("http", "h", 81, "/p?q=1")
    for text in ("http://h/", "https://h:99999/", "file:///etc/passwd", "https://"):
        with pytest.raises(NotDelivered):
            read_address(text, False)


def test_a_command_of_this_kind_is_understood() -> None:
    command = decode_command(
        b'{"v":1,"command_id":"n-1","device":"d","kind":"notice","nonce":1,"expires_ms":2,"arguments":{}}'
    )
    assert command.kind == "notice"
