"""A device's history judged in the order of event time: what the stream would have said had nothing come late. Pure.

The same ``Shard`` judges it, given readings in order and as one lane. States of single devices are put together, since
a thousand devices are judged by one call in the time of one, and taken apart again to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from anomaly.deployment import Deployment
from anomaly.moments import LANES
from anomaly.shard import Part, ShardState
from anomaly.types import Bools, Rows


def in_order(samples: Rows) -> Rows:
    """Readings of any lanes as one lane per device in the order of event time."""
    ordered = samples[np.lexsort([samples[name] for name in ("pos", "seq", "epoch", "at_ms", "device")])]
    ordered["lane"] = 0
    return ordered


def together(states: Sequence[ShardState]) -> ShardState:
    """States of different devices as one; at least one."""
    parts = [_joined([state.parts[number] for state in states]) for number in range(len(states[0].parts))]
    return ShardState(
        np.concatenate([state.series for state in states]), np.concatenate([state.waiting for state in states]),
        tuple(parts),
    )  # fmt: skip


def of_device(state: ShardState, device: int) -> ShardState:
    """The part of a state that belongs to one device."""
    waiting = state.waiting[state.waiting["device"] == device]
    parts = tuple(_chosen(part, part.keys // LANES == device) for part in state.parts)
    return ShardState(state.series[state.series["key"] // LANES == device], waiting, parts)


def quiet(state: ShardState) -> bool:
    """Whether no excursion is open, nor about to be."""
    return not any(part.excursions["open"].any() or (part.counts["count"] > 0).any() for part in state.parts)


@dataclass(frozen=True, slots=True)
class Trust:
    """Which verdicts on a history count when it is known from ``since_ms`` on (0: from the first reading)."""

    since_ms: int
    settle_ms: int = 600_000
    """An excursion that was running when the history began seems to begin there."""

    def in_finding(self, deployment: Deployment, started_ms: int) -> bool:
        """Whether a finding of that beginning follows from the known history alone."""
        if self.since_ms == 0:
            return True
        memory_ms = deployment.detector.memory_ms
        return memory_ms is not None and started_ms >= self.since_ms + max(memory_ms, self.settle_ms)


def _joined(parts: Sequence[Part]) -> Part:
    return Part(
        np.concatenate([part.keys for part in parts]),
        replace(parts[0].state, rows=np.concatenate([part.state.rows for part in parts])),
        *(np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS),
    )  # fmt: skip


def _chosen(part: Part, mine: Bools) -> Part:
    rows = (getattr(part, name)[mine] for name in _ROWS)
    return Part(part.keys[mine], replace(part.state, rows=part.state.rows[mine]), *rows)


_ROWS = ("counts", "excursions", "last", "last_ms")
