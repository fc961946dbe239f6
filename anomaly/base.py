"""The flat shape of every detector: ``start() -> state``, ``step(state, readings) -> state, findings``.

A detector is a frozen dataclass of parameters. Its state is one structured array, one row a device, so that
thousands of devices are judged by one call and a state is a few bytes with a version. ``judge`` reads rows and may
not write them; ``learn`` updates a copy. A device whose operating regime the detector does not know is answered
with ``known = False``: no score, no finding.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from anomaly.errors import BadState
from anomaly.types import Bools, Floats, Ints, Rows

MAGIC = b"FSD1"
UNKNOWN_REGIME = -1


@dataclass(frozen=True, slots=True)
class Readings:
    """One moment of many devices: row ``i`` belongs to row ``device[i]`` of the state, NaN means not measured.

    Within one ``step`` a device appears at most once; ``run`` takes any number per device, in order of event time.
    """

    device: Ints
    at_ms: Ints
    values: Floats
    regime: Ints

    def __len__(self) -> int:
        return len(self.device)

    def take(self, chosen: Ints | slice) -> Readings:
        return Readings(self.device[chosen], self.at_ms[chosen], self.values[chosen], self.regime[chosen])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a detector thinks of each reading: higher score, less normal; an alarm is a score above the threshold.

    ``channel`` is the column that carries most of the score; ``low`` and ``high`` bound what was expected of it.
    Where ``known`` is false the score is NaN and ``alarm`` is false.
    """

    score: Floats
    threshold: Floats
    known: Bools
    channel: Ints
    low: Floats
    high: Floats

    @property
    def alarm(self) -> Bools:
        return self.known & (self.score > self.threshold)

    def take(self, chosen: Bools | Ints) -> Verdict:
        return Verdict(*(getattr(self, name)[chosen] for name in _VERDICT))

    @classmethod
    def join(cls, parts: list[Verdict]) -> Verdict:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _VERDICT))


_VERDICT = ("score", "threshold", "known", "channel", "low", "high")


@dataclass(frozen=True, slots=True)
class Findings:
    """The alarms of a call, in order of input; ``observed`` is the value of the channel that carries most."""

    device: Ints
    at_ms: Ints
    regime: Ints
    observed: Floats
    verdict: Verdict

    def __len__(self) -> int:
        return len(self.device)


@dataclass(frozen=True, slots=True)
class State:
    """One row a device, and which detector with which parameters wrote them."""

    detector: str
    layout: int
    parameters: str
    rows: Rows

    @property
    def bytes_per_device(self) -> int:
        return int(self.rows.dtype.itemsize)

    def grown(self, devices: int, fresh: State) -> State:
        """The same state with room for more devices; new rows are taken from ``fresh``."""
        missing = max(0, devices - len(self.rows))
        return replace(self, rows=np.concatenate([self.rows, fresh.rows[:missing]]))


class Detector(ABC):
    """Base of all detectors; subclasses are frozen dataclasses and fill in ``row``, ``judge`` and ``learn``."""

    name: ClassVar[str]
    layout: ClassVar[int] = 1
    """Raised when the meaning of a row changes: older states are then refused, never misread."""
    layer: ClassVar[str]
    """a rules, b own past, c several signals, d peers."""

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """An instance with sensible parameters, for the laws and the documentation."""

    @property
    @abstractmethod
    def channels(self) -> int:
        """Number of columns in ``Readings.values``."""

    @property
    def memory_ms(self) -> int | None:
        """How far back in event time a reading may lie that matters to a verdict; None: as far as there are any."""
        return None

    @abstractmethod
    def row(self) -> Rows:
        """One fresh row of state, shape (1,)."""

    @abstractmethod
    def judge(self, rows: Rows, readings: Readings) -> Verdict:
        """Score readings against the rows before them; ``rows`` is read-only."""

    @abstractmethod
    def learn(self, rows: Rows, readings: Readings, verdict: Verdict) -> None:
        """Update ``rows`` (a copy) in place."""

    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any parameter."""
        text = json.dumps(asdict(self), default=_plain, sort_keys=True)  # type: ignore[call-overload]
        return hashlib.sha256(f"{self.name}\0{self.layout}\0{text}".encode()).hexdigest()[:16]

    def start(self, devices: int) -> State:
        return State(self.name, self.layout, self.fingerprint(), np.repeat(self.row(), devices))

    def score(self, state: State, readings: Readings) -> Verdict:
        """What ``step`` would say, without learning; never changes the state."""
        rows = state.rows[readings.device]
        rows.flags.writeable = False
        return self.judge(rows, readings)

    def step(self, state: State, readings: Readings) -> tuple[State, Findings]:
        """One moment; each device at most once. The given state stays as it was."""
        rows = state.rows.copy()
        verdict = self._advance(rows, readings)
        return replace(state, rows=rows), findings_of(readings, verdict)

    def run(self, state: State, readings: Readings) -> tuple[State, Verdict]:
        """Any number of readings per device in order of time; the same result however they are cut into calls."""
        rows = state.rows.copy()
        parts: list[tuple[Ints, Verdict]] = []
        for chosen in rounds(readings.device):
            parts.append((chosen, self._advance(rows, readings.take(chosen))))
        if not parts:
            return replace(state, rows=rows), self.score(state, readings)
        back = np.argsort(np.concatenate([chosen for chosen, _ in parts]), kind="stable")
        return replace(state, rows=rows), Verdict.join([verdict for _, verdict in parts]).take(back)

    def _advance(self, rows: Rows, readings: Readings) -> Verdict:
        mine = rows[readings.device]
        mine.flags.writeable = False
        verdict = self.judge(mine, readings)
        mine.flags.writeable = True
        self.learn(mine, readings, verdict)
        rows[readings.device] = mine
        return verdict

    def dump(self, state: State) -> bytes:
        """Magic, header, rows, CRC-32."""
        told = {"detector": state.detector, "layout": state.layout, "parameters": state.parameters}
        head = json.dumps({**told, "devices": len(state.rows), "row_bytes": state.bytes_per_device}).encode()
        body = MAGIC + len(head).to_bytes(4, "little") + head + state.rows.tobytes()
        return body + zlib.crc32(body).to_bytes(4, "little")

    def load(self, data: bytes) -> State:
        """Raises BadState when the bytes are damaged or belong to other parameters or another layout."""
        body, fresh = data[:-4], self.start(1)
        if data[:4] != MAGIC or zlib.crc32(body) != int.from_bytes(data[-4:], "little"):
            raise BadState("damaged or not a detector's state; start afresh and replay the topic")
        size = int.from_bytes(data[4:8], "little")
        told = json.loads(data[8 : 8 + size])
        mine = {"detector": self.name, "layout": self.layout, "parameters": self.fingerprint()}
        if any(told[key] != value for key, value in mine.items()) or told["row_bytes"] != fresh.bytes_per_device:
            raise BadState(f"written by {told}; this is {mine}; start afresh and replay the topic")
        rows = np.frombuffer(data[8 + size : -4], dtype=fresh.rows.dtype).copy()
        return replace(fresh, rows=rows)


def findings_of(readings: Readings, verdict: Verdict) -> Findings:
    """The alarms among judged readings."""
    hit = np.flatnonzero(verdict.alarm)
    told = verdict.take(hit)
    observed = readings.values[hit, told.channel]
    return Findings(readings.device[hit], readings.at_ms[hit], readings.regime[hit], observed, told)


def rounds(device: Ints) -> Iterator[Ints]:
    """Cut a batch so that each part has a device at most once and every device keeps its order."""
    order = np.argsort(device, kind="stable")
    ordered = device[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, int)
    counts = np.diff(np.append(starts, len(ordered)))
    nth = np.arange(len(ordered)) - np.repeat(starts, counts)
    by_round = np.argsort(nth, kind="stable")
    if len(nth):
        cuts = np.searchsorted(nth[by_round], np.arange(1, int(nth.max()) + 1))
        yield from np.split(order[by_round], cuts)


def columns(score: Floats, threshold: Floats | float, known: Bools | np.bool, **extra: Any) -> Verdict:
    """A verdict from its essentials; what is not told is channel 0 and no bounds."""
    count, known = len(score), np.asarray(known)
    nothing = np.full(count, np.nan)
    return Verdict(
        np.where(known, score, np.nan),
        np.broadcast_to(np.asarray(threshold, dtype=np.float64), (count,)),
        known,
        extra.get("channel", np.zeros(count, dtype=np.int64)),
        extra.get("low", nothing),
        extra.get("high", nothing),
    )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
