"""Whatever is asked of whichever route: never a 5xx, always JSON that the published schema allows, errors as problems.

The questions come from the OpenAPI document itself, with parameters that are right, at the edge, or nonsense.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx

from tests.api.fix_api import SPEED, Fleet, Server, api_settings, running
from tests.api.fix_letters import Post, post
from tests.api.published import breaks

__all__ = ["post"]

NOW = datetime.now(UTC).replace(microsecond=0)
ROUNDS = 6
NAMES = {"name": "Car 1", "device": "north-1", "group": "Vans", "letter": f"g-{4:032x}-0-0"}
STREAMS = ("/api/v1/stream", "/metrics", "/livez")
WORDS = (
    "", "x", "Car 1", "north-1", SPEED.path, "2026-11-21T12:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00", "-1", "0", "1", "5000", "99999999999999999999", "1e308", "NaN", "null", "WyJ4Il0",
    "WyJmZWVkIiwwLDAsMCwwLDBd", "\x00", "' OR 1=1 --", "%s %(x)s {}", "=1+1", "ä€😀", "a" * 300, "end", "true",
)  # fmt: skip
BODIES = ("", "{}", "[]", "null", '{"assets": ["Car 1"]}', '{"kind": "ping"}', "device,asset\nx,y\n", "{")
ACCEPTS = (
    "*/*", "application/json", "text/csv", "application/x-ndjson", "application/vnd.apache.parquet",
    "application/vnd.apache.arrow.stream", "text/html", ";;q=,,",
)  # fmt: skip


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if path not in STREAMS:
                yield path, method, operation


def some_value(dice: random.Random, parameter: dict[str, Any]) -> str:
    shape = parameter.get("schema", {})
    right = parameter.get("examples") or shape.get("examples") or [shape.get("default", "")]
    choices = [str(one) for one in (right if isinstance(right, list) else right.values())]
    choices += [str(shape[edge]) for edge in ("minimum", "maximum") if edge in shape]
    choices += [str(one) for one in shape.get("enum", ())]
    noise = "".join(dice.choices(string.printable, k=dice.randrange(12)))
    return dice.choice([*choices, *choices, dice.choice(WORDS), noise])


def ask(client: httpx.Client, dice: random.Random, path: str, method: str, operation: dict[str, Any]) -> httpx.Response:
    query: list[tuple[str, str | int | float | bool | None]] = []
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        if parameter["in"] == "path":
            right = NAMES.get(name, "x")
            value = right if dice.random() < 0.7 else dice.choice([one for one in WORDS if one and one != "\x00"])
            path = path.replace("{" + name + "}", httpx.URL(f"http://x/{value}".replace("\x00", "")).path[1:] or "x")
        elif parameter["in"] == "query" and (parameter.get("required") or dice.random() < 0.5):
            query.append((name, some_value(dice, parameter)))
    headers = {"Accept": dice.choice(ACCEPTS)}
    body: Any = None
    if "requestBody" in operation:
        media = next(iter(operation["requestBody"]["content"]))
        headers["Content-Type"] = dice.choice([media, media, "text/plain"])
        body = dice.choice(
            ["", "{}", "[]", "null", '{"assets": ["Car 1"]}', '{"kind": "ping"}', "device,asset\nx,y\n", "{"]
        )
    query = [one for one in query if one[0] != "wait_s"]  # nobody sends a packet here: it would only wait
    return client.request(method.upper(), path, params=query, headers=headers, content=body)


def test_no_question_breaks_the_service_or_its_schema(fleet: Fleet, post: Post) -> None:
    dice = random.Random(4711)
    fleet.packet("north-1", NOW, [(SPEED.number, 0, 1.0, 0)])
    fleet.latest("north-1", SPEED.number, NOW, 1.0)
    post.refuse(post.frame(NOW, 7, 1), NOW, "future", seq=7)
    asked = set()
    with running(api_settings(fleet)) as server, server.client(fleet.key("north", "admin")) as client:
        schema = client.get("/api/v1/openapi.json").json()
        for path, method, operation in operations(schema):
            for _ in range(ROUNDS):
                answer = ask(client, dice, path, method, operation)
                said = (method, str(answer.request.url), answer.request.content, answer.status_code, answer.text[:300])
                assert answer.status_code < 500 or answer.json()["code"] in ("no_export_key",), said
                known = operation["responses"]
                kind = answer.headers.get("content-type", "").split(";")[0]
                if answer.status_code >= 400:
                    assert kind == "application/problem+json" and answer.json()["status"] == answer.status_code, said
                elif answer.status_code not in (204, 304):
                    assert str(answer.status_code) in known, said
                    shapes = known[str(answer.status_code)].get("content", {})
                    assert kind in shapes, said
                    if kind == "application/json":
                        assert list(breaks(schema, shapes[kind]["schema"], answer.json())) == [], said
                    asked.add(path)
    assert len(asked) >= 20, sorted(asked)


def test_every_operation_has_examples_and_names_its_errors(server: Server) -> None:
    with server.client() as client:
        schema = client.get("/api/v1/openapi.json").json()
    shapes = schema["components"]["schemas"]
    for path, method, operation in operations(schema):
        assert operation.get("description") or operation.get("summary"), (method, path)
        if path.startswith("/api/v1/") and path != "/api/v1/openapi.json":
            assert "application/problem+json" in operation["responses"]["422"]["content"], (method, path)
    for name in ("FeedPacket", "SignalReading", "AssetGroup", "Import", "NewMembers", "DeadLetter", "Resubmission"):
        assert shapes[name]["examples"], name


def test_the_check_of_answers_can_fail() -> None:
    moment = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
    schema = {"type": "object", "required": ["at"], "properties": {"at": moment, "n": {"type": "integer"}}}
    right = {"at": "2026-11-21T12:00:00Z", "n": 1}
    assert list(breaks({}, schema, right)) == []
    wrongs: tuple[Any, ...] = (
        {"n": 1},
        {**right, "at": "2026-11-21T12:00:00"},
        {**right, "n": True},
        {**right, "x": 1},
        [],
    )
    for wrong in wrongs:
        assert list(breaks({}, schema, wrong)), wrong
