"""How long the link was away: whether what comes next must begin with a snapshot. Pure."""

from __future__ import annotations


class Absence:
    """Looked at in every tick; times are monotonic milliseconds."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._since_ms: int | None = None
        self.snapshot_due = False
        """Stays until the snapshot is accepted; may be set from outside."""

    def look(self, is_connected: bool, mono_ms: int) -> bool:
        """Whether a snapshot is to be told now."""
        if not is_connected:
            self._since_ms = mono_ms if self._since_ms is None else self._since_ms
            return False
        if self._since_ms is not None:
            self.snapshot_due |= mono_ms - self._since_ms >= self._limit_ms
            self._since_ms = None
        return self.snapshot_due
