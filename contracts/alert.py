"""An alert and each step of its life, as they travel on the topic ``alerts``: a JSON object per step, keyed by device.

The store's own trigger writes these messages (``infra/migrations``), in the transaction of the step; ``decode_step`` is
what other programs read them with. ``event_no`` grows by one with each step of an alert, so a repeat is recognised.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from contracts.errors import Rejected
from contracts.finding import Severity

STEP_FORMAT: Final = 1
MAX_STEP_BYTES: Final = 16_384


class AlertState(StrEnum):
    """Where an alert stands. ``retracted``: late data took its ground away; nobody has to do anything."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"
    ASSIGNED = "assigned"
    IN_PROGRESS = "in_progress"
    RESOLVED = "resolved"
    REOPENED = "reopened"
    SUPPRESSED = "suppressed"
    RETRACTED = "retracted"


class Resolution(StrEnum):
    """What a person found: the detector was right, it was wrong, or nobody can say."""

    TRUE = "true"
    FALSE = "false"
    UNCLEAR = "unclear"


class StepKind(StrEnum):
    """What happened to an alert. ``amended``: late data changed its ground, it stays in the hands it is in."""

    OPENED = "opened"
    MOVED = "moved"
    WORSENED = "worsened"
    AMENDED = "amended"
    RETRACTED = "retracted"
    REOPENED = "reopened"
    ESCALATED = "escalated"
    GROUPED = "grouped"
    UNGROUPED = "ungrouped"


@dataclass(frozen=True, slots=True)
class AlertStep:
    """One step and how the alert stands after it; times are Unix epoch milliseconds. ``root``: its storm's alert."""

    alert_id: str
    event_no: int
    kind: StepKind
    at_ms: int
    by: str
    note: str
    device: str
    asset: str | None
    cause: str
    detector: str
    severity: Severity
    from_state: AlertState | None
    to_state: AlertState
    resolution: Resolution | None
    assignee: str | None
    root: str | None
    since_ms: int
    last_seen_ms: int
    findings: int
    revision: int


def decode_step(data: bytes) -> AlertStep:
    """Raises Rejected('bad_alert'). Members that this version does not know are passed over."""
    if len(data) > MAX_STEP_BYTES:
        raise Rejected("bad_alert", f"{len(data)} bytes")
    try:
        body = json.loads(data)
        if body.pop("v") != STEP_FORMAT:
            raise Rejected("bad_alert", "unknown format")
        return _step(body)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Rejected("bad_alert", str(error)) from error


def _step(body: dict[str, Any]) -> AlertStep:
    known = {name: body[name] for name in AlertStep.__slots__}
    known["kind"] = StepKind(known["kind"])
    known["severity"] = Severity(known["severity"])
    known["to_state"] = AlertState(known["to_state"])
    known["from_state"] = None if known["from_state"] is None else AlertState(known["from_state"])
    known["resolution"] = None if known["resolution"] is None else Resolution(known["resolution"])
    return AlertStep(**known)
