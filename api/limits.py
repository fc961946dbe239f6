"""A fair share for everybody: token buckets per key, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from api.errors import TooMany

MOST_BUCKETS = 10_000
"""Beyond it the bucket idle for longest is forgotten: it is full again by then, or its owner gains one burst."""


@dataclass
class Buckets:
    """``rate_per_s`` tokens flow into each name's bucket, which holds ``burst``; a request takes one."""

    rate_per_s: float
    burst: int
    clock_s: Callable[[], float]
    most: int = MOST_BUCKETS
    what: str = "requests"
    _levels: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, name: str) -> None:
        """Raises TooMany with the seconds to wait."""
        now_s = self.clock_s()
        level, at_s = self._levels.pop(name, (float(self.burst), now_s))
        level = min(float(self.burst), level + (now_s - at_s) * self.rate_per_s)
        allowed = level >= 1.0
        self._levels[name] = (level - 1.0 if allowed else level, now_s)
        if len(self._levels) > self.most:
            self._levels.popitem(last=False)
        if not allowed:
            wait_s = max(1, ceil((1.0 - level) / self.rate_per_s))
            raise TooMany(f"more than {self.rate_per_s:g} requests per second; wait {wait_s} s", wait_s, self.what)


@dataclass
class Seats:
    """At most ``most`` open streams per key."""

    most: int
    what: str = "live streams"
    _taken: dict[str, int] = field(default_factory=dict)

    def take(self, name: str) -> None:
        """Raises TooMany; what was taken must be given back."""
        taken = self._taken.get(name, 0)
        if taken >= self.most:
            raise TooMany(f"this key has {taken} {self.what} open already; let one end", 5, self.what)
        self._taken[name] = taken + 1

    def give_back(self, name: str) -> None:
        left = self._taken[name] - 1
        if left:
            self._taken[name] = left
        else:
            del self._taken[name]
