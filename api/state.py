"""The state of an asset's data, from two ages: when its newest value was measured, and when it was received."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

LIVE_WITHIN = timedelta(seconds=15)
"""A packet closes every second by default and a Spark batch takes a few: 15 s is late, not jitter."""
HEARD_WITHIN = timedelta(seconds=60)
"""An agent without a link tries again within 60 s (its longest pause)."""

State = Literal["live", "catching_up", "delayed", "silent", "recording", "no_data"]


def state_of(measured_at: datetime | None, received_at: datetime | None, recording: bool, now: datetime) -> State:
    """``catching_up``: packets arrive, but what they tell is old (a backlog is being sent)."""
    if measured_at is None or received_at is None:
        return "no_data"
    if recording:
        return "recording"
    if now - measured_at <= LIVE_WITHIN:
        return "live"
    if now - received_at <= LIVE_WITHIN:
        return "catching_up"
    return "delayed" if now - received_at <= HEARD_WITHIN else "silent"
