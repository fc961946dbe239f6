"""What the gateway has counted, as plain integers: cheap enough for every packet, turned into metrics when asked."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

LATENCY_BOUNDS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class Latency:
    """A histogram of seconds."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    total_s: float = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.total_s += seconds


@dataclass(slots=True)
class Counts:
    """One worker's counters since its start. ``accepted`` by Kafka topic, ``refused`` by reason."""

    received: int = 0
    received_bytes: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    shed: int = 0
    produced: int = 0
    pubacked: int = 0
    stale_pubacks: int = 0
    acks_sent: int = 0
    connects: int = 0
    producers_replaced: int = 0
    kafka_errors: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    latency: Latency = field(default_factory=Latency)
    """From receipt to release of the PUBACK."""
