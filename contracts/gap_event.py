"""A hole in the delivery ledger as a message on the ``events`` topic: opened once, ended once.

Key = device name. Repeats are possible (the outbox delivers at least once): ``gap_id`` and ``state`` name an event.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from contracts.errors import Rejected
from contracts.ranges import Range

KIND: Final = "ledger_gap"
EVENT_FORMAT: Final = 1
OPENED, CLOSED, EXPLAINED = "opened", "closed", "explained"
STATES: Final = (OPENED, CLOSED, EXPLAINED)
"""``closed``: every number is stored now. ``explained``: what is not stored was dropped or set aside with a reason."""
MOST_RANGES: Final = 50


@dataclass(frozen=True, slots=True)
class GapEvent:
    """Times are Unix epoch milliseconds; ``packets`` are missing now (opened) or were in all (closed, explained)."""

    gap_id: int
    state: str
    device: str
    tenant: str
    boot_epoch: int
    first_seq: int
    last_seq: int
    packets: int
    since_ms: int
    at_ms: int
    ranges: tuple[Range, ...] = ()
    """The first ``MOST_RANGES`` of the numbers that ``packets`` counts."""


def encode_gap_event(event: GapEvent) -> bytes:
    return json.dumps({"v": EVENT_FORMAT, "kind": KIND, **asdict(event)}, separators=(",", ":")).encode()


def decode_gap_event(data: bytes) -> GapEvent:
    """Raises Rejected('bad_event'), also for an event of another kind."""
    try:
        body = json.loads(data)
        if body.pop("v") != EVENT_FORMAT or body.pop("kind") != KIND or body["state"] not in STATES:
            raise Rejected("bad_event", "not a gap event of this format")
        ranges = tuple((int(first), int(last)) for first, last in body.pop("ranges"))
        return GapEvent(**body, ranges=ranges)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Rejected("bad_event", str(error)) from error
