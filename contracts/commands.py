"""What the cloud asks of a device and what the device answers: JSON over MQTT and on two Kafka topics.

A command travels on ``v1/{device}/down/cmd`` and the commands topic. It carries an id, a nonce (so that a repeat is
recognised) and an expiry. The answer travels on ``v1/{device}/up/answer`` and the answers topic; a repeat of a command
is answered again and not carried out again. Which kinds there are: ``command_menu``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from contracts.command_menu import MENU
from contracts.errors import Rejected

COMMAND_FORMAT = 1
KINDS = tuple(MENU)
ANSWER_FORMAT = 1
MAX_ANSWER_BYTES = 64 * 1024
MAX_REASON = 200
IDENTITY_CHANGED = "identity_changed"
"""Reason of the one answer that answers no command: the device goes on under another boot epoch."""

MAX_ID = 64


@dataclass(frozen=True, slots=True)
class Command:
    """One request; ``expires_ms`` and ``issued_ms`` (0: not told) are Unix epoch milliseconds of the cloud's clock."""

    command_id: str
    device: str
    kind: str
    nonce: int
    expires_ms: int
    arguments: dict[str, Any] = field(default_factory=dict)
    issued_ms: int = 0


def encode_command(command: Command) -> bytes:
    body = asdict(command)
    if not command.issued_ms:
        del body["issued_ms"]
    return json.dumps({"v": COMMAND_FORMAT, **body}, separators=(",", ":")).encode()


def decode_command(data: bytes) -> Command:
    """Raises Rejected('bad_command'). A kind that this version does not know is no fault: its device refuses it."""
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or body.pop("v") != COMMAND_FORMAT:
            raise Rejected("bad_command", "unknown format")
        command = Command(**body)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise Rejected("bad_command", str(error)) from error
    texts = (command.command_id, command.device, command.kind)
    numbers = (command.nonce, command.expires_ms, command.issued_ms)
    if not all(isinstance(text, str) and 0 < len(text) <= MAX_ID for text in texts):
        raise Rejected("bad_command", f"an id, a device or a kind is no text of 1 to {MAX_ID} characters")
    if not all(type(number) is int and abs(number) < 2**63 for number in numbers):
        raise Rejected("bad_command", "nonce, expiry or time of issue is no 64-bit integer")
    if not isinstance(command.arguments, dict):
        raise Rejected("bad_command", "arguments are an object")
    return command


class Outcome(StrEnum):
    """What became of a command, as its device says."""

    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    """The device was cut off while it worked, or lost its memory since; it will not try again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A device's answer; ``reason`` is a code ('' when done), ``detail`` depends on the kind."""

    command_id: str
    device: str
    nonce: int
    outcome: Outcome
    reason: str
    at_ms: int
    detail: dict[str, Any] = field(default_factory=dict)


def encode_answer(answer: Answer) -> bytes:
    return json.dumps({"v": ANSWER_FORMAT, **asdict(answer)}, separators=(",", ":")).encode()


def decode_answer(data: bytes) -> Answer:
    """Raises Rejected('bad_answer')."""
    if len(data) > MAX_ANSWER_BYTES:
        raise Rejected("bad_answer", f"{len(data)} bytes")
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or body.pop("v") != ANSWER_FORMAT:
            raise Rejected("bad_answer", "unknown format")
        body["outcome"] = Outcome(body["outcome"])
        answer = Answer(**body)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise Rejected("bad_answer", str(error)) from error
    texts, numbers = (answer.command_id, answer.device), (answer.nonce, answer.at_ms)
    if not all(isinstance(text, str) and 0 < len(text) <= MAX_ID for text in texts):
        raise Rejected("bad_answer", "an id or a device is missing")
    if not isinstance(answer.reason, str) or len(answer.reason) > MAX_REASON or not isinstance(answer.detail, dict):
        raise Rejected("bad_answer", "reason or detail has the wrong form")
    if not all(type(number) is int and abs(number) < 2**63 for number in numbers):
        raise Rejected("bad_answer", "a number is out of bounds")
    _check_storable([*texts, answer.reason, answer.detail])
    return answer


def _check_storable(content: list[Any]) -> None:
    """A database takes neither NUL nor half a surrogate pair nor NaN: refused at the door, not by the last reader."""
    try:
        text = json.dumps(content, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise Rejected("bad_answer", str(error)) from error
    if "\\u0000" in text:
        raise Rejected("bad_answer", "text with NUL")
