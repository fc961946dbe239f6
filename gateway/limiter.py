"""A rate limit per device and lane, so that one device gone wild does not cost the others their place.

What is over the limit is PUBACKed and neither produced nor confirmed: it stays in its device's spool, which
sends it again later. Nothing is lost, and the order of PUBACKs is kept (holding a PUBACK back would stop
everybody behind it).
"""

from __future__ import annotations

MAX_BUCKETS = 100_000


class Limiter:
    """A leaky bucket in one float per name: the moment at which the bucket will be empty."""

    def __init__(self, per_s: float, burst: int, max_buckets: int = MAX_BUCKETS) -> None:
        self._interval_s = 1.0 / per_s
        self._burst_s = burst / per_s
        self._max_buckets = max_buckets
        self._empty_at_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._empty_at_s)

    def allow(self, name: str, now_s: float) -> bool:
        """Count one packet; False when it is over the limit (then it is not counted)."""
        empty_at_s = max(self._empty_at_s.get(name, now_s), now_s) + self._interval_s
        if empty_at_s - now_s > self._burst_s + 1e-9:
            return False
        self._empty_at_s[name] = empty_at_s
        if len(self._empty_at_s) > self._max_buckets:
            self._shrink(now_s)
        return True

    def _shrink(self, now_s: float) -> None:
        """Empty buckets say nothing; if none is empty, half of them begin anew."""
        busy = {name: at_s for name, at_s in self._empty_at_s.items() if at_s > now_s}
        if len(busy) > self._max_buckets // 2:
            busy = dict(list(busy.items())[len(busy) // 2 :])
        self._empty_at_s = busy
