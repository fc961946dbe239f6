"""The root error and the three answers a caller can give: reject it, try later, stop.

Rooms derive their own errors from these three. The class answers the only question that a caller has to
ask ("what now?"); the message says what happened, what was not lost and what to do.
"""

from __future__ import annotations


class FleetstreamError(Exception):
    """Root of every error that this project raises on purpose."""


class Rejected(FleetstreamError):
    """This input will never be accepted: keep its bytes aside with the reason and go on.

    ``reason`` is a stable lower-case code for counters and dead letters; ``detail`` is for people.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class TryLater(FleetstreamError):
    """Something outside is not ready; nothing was lost; ask again after ``retry_after_ms``."""

    def __init__(self, message: str, retry_after_ms: int = 1_000) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class Fatal(FleetstreamError):
    """This process cannot go on until a person changes something; the message names the fix."""
