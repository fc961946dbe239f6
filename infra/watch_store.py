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
from typing import Any

import psycopg

POLL_S = 0.1
LOOK_BACK_S = 60
"""Rows whose first sample is older than this are not looked for: latency beyond it counts as ``beyond``."""
SEEN_KEEP_S = 2 * LOOK_BACK_S
RECENT_S = 10.0

NEW_ROWS = """
SELECT p.device_key, p.boot_epoch, p.seq, p.first_at FROM packet_rows p
JOIN devices d USING (device_key)
WHERE d.device = ANY(%(devices)s) AND p.first_at > now() - %(back)s * interval '1 s'
"""
OFFSETS = """
SELECT p.base_ms, p.offsets_ms
FROM unnest(%(keys)s::int[], %(epochs)s::bigint[], %(seqs)s::bigint[], %(firsts)s::timestamptz[])
    AS k (device_key, boot_epoch, seq, first_at)
JOIN packet_rows p USING (device_key, boot_epoch, seq, first_at)
"""
TOTALS = """
SELECT coalesce(sum(s.packets), 0)::bigint, coalesce(sum(s.samples), 0)::bigint, coalesce(sum(s.duplicates), 0)::bigint
FROM seen_ranges s JOIN devices d USING (device_key) WHERE d.device = ANY(%(devices)s)
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


class StoreWatch:
    """Asks in a thread of its own until stopped; survives a store that is away for a while."""

    def __init__(self, dsn: str, devices: Collection[str]) -> None:
        self._dsn = dsn
        self._devices = list(devices)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-watch", daemon=True)
        self._seen: dict[tuple[int, int, int], float] = {}
        self._base = (0, 0, 0)
        self.packets = self.samples = self.duplicates = 0
        self.all, self.recent = Latencies(), Latencies()
        self._recent_since_s = 0.0

    def start(self) -> None:
        """Note what is stored already, then watch. Raises psycopg.Error."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            self._base = self._totals(connection)
            self._remember(connection, time.monotonic())
        self._thread.start()

    def stop(self) -> None:
        """Ask once more and end."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    while not self._stop.wait(POLL_S):
                        self._look(connection)
                    self._look(connection)
            except psycopg.Error:
                self._stop.wait(1.0)

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        new = self._remember(connection, time.monotonic())
        visible_ms = time.time_ns() // 1_000_000
        if new:
            columns = [list(column) for column in zip(*new, strict=True)]
            names = dict(zip(("keys", "epochs", "seqs", "firsts"), columns, strict=True))
            for base_ms, offsets in connection.execute(OFFSETS, names):
                self._note(visible_ms - base_ms, offsets)
        packets, samples, duplicates = self._totals(connection)
        self.packets, self.samples = packets - self._base[0], samples - self._base[1]
        self.duplicates = duplicates - self._base[2]

    def _note(self, since_base_ms: int, offsets: list[int]) -> None:
        now_s = time.monotonic()
        if now_s - self._recent_since_s > RECENT_S:
            self._recent_since_s = now_s
            self.recent.clear()
        for offset_ms in offsets:
            self.all.add(since_base_ms - offset_ms)
            self.recent.add(since_base_ms - offset_ms)

    def _remember(self, connection: psycopg.Connection[Any], now_s: float) -> list[tuple[int, int, int, Any]]:
        """Rows returned for the first time; identities are forgotten when they can no longer be returned."""
        rows = connection.execute(NEW_ROWS, {"devices": self._devices, "back": LOOK_BACK_S}).fetchall()
        new = [(key, epoch, seq, first) for key, epoch, seq, first in rows if (key, epoch, seq) not in self._seen]
        self._seen.update({(key, epoch, seq): now_s for key, epoch, seq, _ in new})
        if new and now_s - next(iter(self._seen.values())) > 2 * SEEN_KEEP_S:
            self._seen = {identity: at_s for identity, at_s in self._seen.items() if now_s - at_s < SEEN_KEEP_S}
        return new

    def _totals(self, connection: psycopg.Connection[Any]) -> tuple[int, int, int]:
        row = connection.execute(TOTALS, {"devices": self._devices}).fetchone()
        return (int(row[0]), int(row[1]), int(row[2])) if row else (0, 0, 0)
