"""The JSON of commands: what is asked, what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ConfigDict, Field

from api.shapes import Shape
from contracts.command_life import State

_EXAMPLE: dict[str, Any] = {
    "device": "van-7", "command_id": "c-0a1b2c3d4e5f6071", "kind": "ping", "arguments": {}, "state": "done",
    "reason": "", "detail": {"held_packets": 3}, "asked_by": "key:0a1b2c3d4e5f6071",
    "created_at": "2026-11-21T12:00:00Z", "expires_at": "2026-11-21T13:00:00Z", "attempts": 1,
    "sent_at": "2026-11-21T12:00:01Z", "answered_at": "2026-11-21T12:00:02Z", "changes": [],
}  # fmt: skip


class CommandRequest(Shape):
    """What is asked. ``expires_in_s``: how long it may wait for the device; without it the kind's own time."""

    model_config = ConfigDict(
        frozen=True, extra="forbid",
        json_schema_extra={"examples": [{"kind": "sampling", "arguments": {"profile": "all"}, "expires_in_s": 3600}]},
    )  # fmt: skip

    kind: str = Field(min_length=1, max_length=64)
    arguments: dict[str, Any] = Field(default_factory=dict)
    expires_in_s: int | None = Field(None, ge=1)


class CommandChange(Shape):
    """One change of state: when, by whom (``key:``, ``cli:``, ``device:``, ``policy:`` or ``clerk``), why."""

    change_no: int
    changed_at: datetime
    changed_by: str
    from_state: State | None
    to_state: State
    attempts: int
    reason: str


class CommandShape(Shape):
    """A command and what became of it; ``detail`` is the device's answer. ``unknown``: nobody can say."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_EXAMPLE]})

    device: str
    command_id: str
    kind: str
    arguments: dict[str, Any]
    state: State
    reason: str
    detail: dict[str, Any]
    asked_by: str
    created_at: datetime
    expires_at: datetime
    attempts: int
    sent_at: datetime | None
    answered_at: datetime | None
    changes: list[CommandChange] = Field(default_factory=list)


class Commands(Shape):
    """A page of commands, newest first; ``next`` is the cursor of the following one, null at the end."""

    as_of: datetime
    items: list[CommandShape]
    next: str | None


class CommandKindShape(Shape):
    """One line of the menu; ``life_s``: how long it waits when nothing is said."""

    kind: str
    text: str
    arguments: dict[str, str]
    life_s: int


class CommandKinds(Shape):
    """The menu."""

    items: list[CommandKindShape]
