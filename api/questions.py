"""What callers may ask: time ranges within limits, and cursors that mean a place, not a page number."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from api.errors import BadQuestion
from contracts.errors import Rejected
from contracts.signals import Signal, catalogue

DEFAULT_RANGE = timedelta(hours=1)
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Range:
    """[start, end) in UTC."""

    start: datetime
    end: datetime

    @property
    def start_ms(self) -> int:
        return to_ms(self.start)

    @property
    def end_ms(self) -> int:
        return to_ms(self.end)


def to_ms(moment: datetime) -> int:
    """Unix epoch milliseconds, rounded down."""
    return (moment - EARLIEST) // timedelta(milliseconds=1)


def from_ms(ms: int) -> datetime:
    return EARLIEST + timedelta(milliseconds=ms)


def time_range(start: datetime | None, end: datetime | None, now: datetime, longest_s: int) -> Range:
    """The asked range; without limits the last hour. Raises BadQuestion."""
    end = (end or now).astimezone(UTC)
    if end < EARLIEST + DEFAULT_RANGE:
        raise BadQuestion("bad_range", "times before 1970 hold no readings", "to")
    start = (start or end - min(DEFAULT_RANGE, timedelta(seconds=longest_s))).astimezone(UTC)
    if start < EARLIEST:
        raise BadQuestion("bad_range", "times before 1970 hold no readings", "from")
    if start >= end:
        raise BadQuestion("bad_range", "'from' must be earlier than 'to'", "from")
    if end - start > timedelta(seconds=longest_s):
        raise BadQuestion("range_too_long", f"at most {longest_s} s at once; ask for one part after the other", "from")
    return Range(start, end)


def find_signal(path: str, parameter: str = "signal") -> Signal:
    """Raises BadQuestion('unknown_signal')."""
    try:
        return catalogue().by_path(path)
    except Rejected as error:
        detail = f"{path[:100]!r} is not in the catalogue; GET /api/v1/signals lists it"
        raise BadQuestion("unknown_signal", detail, parameter) from error


def make_cursor(kind: str, place: Sequence[str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps([kind, *place], separators=(",", ":")).encode()).decode().rstrip("=")


def read_cursor(kind: str, text: str, types: Sequence[type]) -> list[str | int]:
    """The place a cursor of this kind means. Raises BadQuestion('bad_cursor')."""
    try:
        parts = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != [str, *types] or parts[0] != kind:
        raise BadQuestion(
            "bad_cursor", "not a cursor of this resource; take it from the last answer's 'next'", "cursor"
        )
    if any(isinstance(part, int) and not -(2**63) <= part < 2**63 for part in parts):
        raise BadQuestion(
            "bad_cursor", "not a cursor of this resource; take it from the last answer's 'next'", "cursor"
        )
    return parts[1:]
