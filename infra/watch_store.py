"""Measure freshness from outside: ask the store for new rows again and again, and note when each is first returned.

The latency of a sample is the time at which a query returned its row, minus the event time that the device gave it.
Devices, store and this process share one machine's clock. Asking every 100 ms makes the figure a little worse than
the truth, never better.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import psycopg

POLL_S = 0.1
LOOK_BACK_S = 60
"""Samples that need longer than this to appear are counted as stored, but their latency is not in the figures."""
NARROW_S = 5.0
"""A device's new rows are looked for from this long before its newest known one."""
WIDE_EVERY_S = 10.0
"""This often all rows of LOOK_BACK_S are looked at, so that a late packet is found, too."""
RECENT_S = 10.0

TOTALS = """
SELECT s.device_key, sum(s.packets)::bigint, sum(s.samples)::bigint, sum(s.duplicates)::bigint
FROM seen_ranges s JOIN devices d USING (device_key) WHERE d.device = ANY(%(devices)s) GROUP BY s.device_key
"""
NEW_ROWS = """
SELECT p.device_key, p.boot_epoch, p.seq, extract(epoch FROM p.first_at)::float8, p.base_ms, p.offsets_ms
FROM unnest(%(keys)s::int[], %(sinces)s::float8[]) AS k (device_key, since_s)
JOIN packet_rows p ON p.device_key = k.device_key AND p.first_at > to_timestamp(k.since_s)
"""


class Latencies:
    """A histogram by milliseconds; memory is bounded by LOOK_BACK_S."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, latency_ms: int) -> None:
        self._counts[latency_ms] += 1

    def clear(self) -> None:
        self._counts.clear()

    def percentile(self, share: float) -> int | None:
        """Least latency in ms that at least ``share`` of the samples did not exceed; None without samples.

        >>> latencies = Latencies()
        >>> for ms in (5, 1, 9, 7): latencies.add(ms)
        >>> latencies.percentile(0.5), latencies.percentile(0.95)
        (5, 9)
        """
        left = share * self._counts.total()
        for latency_ms in sorted(self._counts):
            left -= self._counts[latency_ms]
            if left <= 0:
                return latency_ms
        return None


@dataclass(slots=True)
class _Seen:
    """What is known of one device; times are Unix epoch seconds."""

    totals: tuple[int, int, int] = (0, 0, 0)
    base: tuple[int, int, int] = (0, 0, 0)
    newest_s: float = 0.0
    rows: dict[tuple[int, int], float] = field(default_factory=dict)


class StoreWatch:
    """Asks in a thread of its own until stopped; survives a store that is away for a while."""

    def __init__(self, dsn: str, devices: Collection[str]) -> None:
        self._dsn = dsn
        self._devices = list(devices)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-watch", daemon=True)
        self._seen: dict[int, _Seen] = {}
        self._wide_s = 0.0
        self._recent_since_s = 0.0
        self.all, self.recent = Latencies(), Latencies()

    @property
    def packets(self) -> int:
        """Stored since ``start``."""
        return self._sum(0)

    @property
    def samples(self) -> int:
        return self._sum(1)

    @property
    def duplicates(self) -> int:
        """Packets that came again and were recognised, since ``start``."""
        return self._sum(2)

    def start(self) -> None:
        """Note what is stored already, then watch. Raises psycopg.Error."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            self._look(connection, time.time(), measure=False)
        for seen in self._seen.values():
            seen.base = seen.totals
        self._thread.start()

    def stop(self) -> None:
        """Ask once more and end."""
        self._stop.set()
        self._thread.join()

    def _sum(self, column: int) -> int:
        return sum(seen.totals[column] - seen.base[column] for seen in list(self._seen.values()))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    while not self._stop.wait(POLL_S):
                        self._look(connection, time.time())
                    self._look(connection, time.time())
            except psycopg.Error:
                self._stop.wait(1.0)

    def _look(self, connection: psycopg.Connection[Any], now_s: float, measure: bool = True) -> None:
        """Ask the ledger what changed, then for the rows of the devices that changed."""
        changed = []
        for key, *totals in connection.execute(TOTALS, {"devices": self._devices}):
            seen = self._seen.setdefault(key, _Seen())
            if seen.totals[0] != totals[0]:
                changed.append(key)
            seen.totals = (totals[0], totals[1], totals[2])
        horizon_s = now_s - LOOK_BACK_S
        wide = now_s - self._wide_s > WIDE_EVERY_S
        if wide:
            self._wide_s, changed = now_s, list(self._seen)
        if not changed:
            return
        sinces = [horizon_s if wide else max(horizon_s, self._seen[key].newest_s - NARROW_S) for key in changed]
        rows = connection.execute(NEW_ROWS, {"keys": changed, "sinces": sinces}).fetchall()
        visible_ms = time.time_ns() // 1_000_000
        for key, epoch, seq, first_s, base_ms, offsets in rows:
            if self._is_new(self._seen[key], (epoch, seq), first_s) and measure:
                self._note(visible_ms - base_ms, offsets)
        if wide:
            self._forget(horizon_s)

    @staticmethod
    def _is_new(seen: _Seen, identity: tuple[int, int], first_s: float) -> bool:
        if identity in seen.rows:
            return False
        seen.rows[identity] = first_s
        seen.newest_s = max(seen.newest_s, first_s)
        return True

    def _forget(self, horizon_s: float) -> None:
        """Rows that no question can return any more."""
        for seen in self._seen.values():
            seen.rows = {identity: first_s for identity, first_s in seen.rows.items() if first_s > horizon_s - 1}

    def _note(self, since_base_ms: int, offsets: list[int]) -> None:
        now_s = time.monotonic()
        if now_s - self._recent_since_s > RECENT_S:
            self._recent_since_s = now_s
            self.recent.clear()
        for offset_ms in offsets:
            self.all.add(since_base_ms - offset_ms)
            self.recent.add(since_base_ms - offset_ms)
