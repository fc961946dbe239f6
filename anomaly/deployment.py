"""A detector deployment: which detector with which frozen parameters judges which signals of which machines.

Declared once (``anomaly.deployed``), or made of a trained model (``anomaly.models``), which judges the event times
between its promotion and its successor's. Run alike in the stream, in batch and on replay. Its version is a fingerprint
of everything that can change an answer; a finding names it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anomaly.accumulate import Accumulator
from anomaly.base import UNKNOWN_REGIME, Detector
from anomaly.errors import BadParameters
from anomaly.types import Floats, Ints
from contracts.finding import Severity

_NAME = re.compile(r"[a-z0-9-]{1,40}")
FOREVER = 2**42
"""Event times end here (the year 2109)."""


@dataclass(frozen=True, slots=True)
class Regime:
    """Operating regime by one column: below ``edges[0]`` unknown, then 0, 1, … between edges. No edges: always 0."""

    column: int = 0
    edges: tuple[float, ...] = ()

    def of(self, values: Floats) -> Ints:
        """Regimes of rows; a row whose column is not measured has none."""
        if not self.edges:
            return np.zeros(len(values), dtype=np.int64)
        told = values[:, self.column]
        regime = np.searchsorted(np.asarray(self.edges), told, side="right") - 1
        return np.where(np.isfinite(told), np.maximum(regime, UNKNOWN_REGIME), UNKNOWN_REGIME).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Deployment:
    """One declared detector.

    ``signals`` are catalogue numbers in the order of columns; the detector judges the first ``detector.channels`` of
    them, the rest only names the regime. A moment is judged when one of the columns ``awaits`` was measured in it;
    columns measured less often are held for ``hold_ms``. ``kinds`` are kinds of assets. ``severity`` is that of an
    excursion that was called, and rises by one when the score reaches ``worse`` times its threshold.

    ``model`` is the SHA-256 of the file whose parameters these are ("" for a declared one); moments with event times
    from ``since_ms`` on and before ``until_ms`` are judged, others are not looked at.
    """

    name: str
    detector: Detector
    signals: tuple[int, ...]
    kinds: tuple[str, ...]
    cause: str
    advice: str
    severity: Severity
    accumulator: Accumulator
    awaits: tuple[int, ...] = (0,)
    hold_ms: int = 0
    worse: float = float("inf")
    regime: Regime = Regime()
    model: str = ""
    since_ms: int = 0
    until_ms: int = FOREVER

    def __post_init__(self) -> None:
        columns = range(len(self.signals))
        if not _NAME.fullmatch(self.name) or len(set(self.signals)) != len(self.signals):
            raise BadParameters(f"deployment {self.name!r}: lower-case letters, digits and -, no signal twice")
        if self.detector.channels > len(self.signals) or not self.awaits or not self.kinds:
            raise BadParameters(f"deployment {self.name}: wanted a signal per channel, kinds, and what is awaited")
        if not set(self.awaits) <= set(columns) or self.regime.column not in columns:
            raise BadParameters(f"deployment {self.name}: awaits and regime are places in its signals")
        if not 0 <= self.since_ms < self.until_ms:
            raise BadParameters(f"deployment {self.name}: it ends before it begins")

    @property
    def version(self) -> str:
        """16 hexadecimal digits that change with anything that can change an answer."""
        told = {
            "detector": self.detector.name, "parameters": self.detector.fingerprint(), "signals": self.signals,
            "kinds": self.kinds, "cause": self.cause, "severity": int(self.severity), "awaits": self.awaits,
            "hold_ms": self.hold_ms, "worse": self.worse, "regime": [self.regime.column, self.regime.edges],
            "accumulator": [self.accumulator.call_at, self.accumulator.close_at, self.accumulator.ceiling],
        }  # fmt: skip
        if self.model:
            told["model"] = self.model
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def state_key(self) -> str:
        """Names the state that it learns: another version, or the same one deployed again later, begins afresh."""
        return f"{self.version}@{self.since_ms}"


def check_set(deployments: Sequence[Deployment]) -> tuple[Deployment, ...]:
    """Raises BadParameters when two have one name at one time, or a detector compares devices (they lie in different
    shards)."""
    names = [one.name for one in deployments]
    dated = sorted(deployments, key=lambda one: (one.name, one.since_ms))
    if any(one.name == other.name and other.since_ms < one.until_ms for one, other in pairwise(dated)):
        raise BadParameters(
            f"deployments share a name: {', '.join(sorted(names))}; a finding could not say whose it is"
        )
    for one in deployments:
        if one.detector.layer == "d":
            raise BadParameters(
                f"deployment {one.name}: {one.detector.name} compares devices, a shard holds some of them"
            )
    return tuple(deployments)


def set_version(deployments: Sequence[Deployment]) -> str:
    """Fingerprint of a declared set."""
    told = sorted((one.name, one.version) for one in deployments)
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
