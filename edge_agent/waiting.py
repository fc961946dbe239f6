"""Drafts that wait for their commit, in bounded memory: what a full disk cannot take for a while. Pure.

When memory is full too, the oldest of the lowest class goes. It was never accepted, so it takes no number; it is
counted, the count is kept with the next commit and told in every heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable

from contracts.signals import Retention
from edge_agent.packing import Draft


class Waiting:
    """A bounded list of drafts, in order of arrival."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._oldest_mono_ms = 0
        self.drafts: list[Draft] = []
        self.lost_samples = 0
        """Given up and not yet written down."""

    def __bool__(self) -> bool:
        return bool(self.drafts)

    def add(self, drafts: Iterable[Draft], mono_ms: int) -> None:
        """Take drafts in; over the limit the least important go."""
        if not self.drafts:
            self._oldest_mono_ms = mono_ms
        for draft in drafts:
            self.drafts.append(draft)
            self._bytes += draft.memory_bytes
        while self._bytes > self._limit_bytes and len(self.drafts) > 1:
            least = min(range(len(self.drafts)), key=lambda at: (self.drafts[at].retention, at))
            self.lose([self.drafts[least]])
            self._bytes -= self.drafts.pop(least).memory_bytes

    def lose(self, drafts: Iterable[Draft]) -> None:
        """Count drafts as given up."""
        self.lost_samples += sum(draft.samples for draft in drafts)

    @property
    def half_full(self) -> bool:
        """Whether older packets should rather fall than memory run out."""
        return self._bytes > self._limit_bytes // 2

    def due(self, mono_ms: int, packets: int, wait_ms: int) -> bool:
        """Whether to commit now."""
        if not self.drafts:
            return False
        urgent = any(draft.retention == Retention.PRIORITY for draft in self.drafts)
        return urgent or len(self.drafts) >= packets or mono_ms - self._oldest_mono_ms >= wait_ms

    def clear(self) -> None:
        """The drafts were accepted, and what was lost is written down."""
        self.drafts, self._bytes, self.lost_samples = [], 0, 0
