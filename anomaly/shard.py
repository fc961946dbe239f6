"""Detection over a shard of devices: readings in log order and a small state in, what is to be said out. Pure.

The same steps run in the stream (one shard's readings of one micro-batch at a time), in batch and on replay, and give
the same tellings however the log is cut. A state is bytes with a version: those of another declared set are refused.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anomaly import excursions
from anomaly.base import Readings, State
from anomaly.deployment import Deployment, check_set, set_version
from anomaly.errors import BadState
from anomaly.excursions import TOLD
from anomaly.moments import (
    LANES,
    SAMPLE,
    SERIES,
    STEP_MS,
    Late,
    Moments,
    arrive,
    astray,
    cells,
    held,
    lost_until,
    moments,
    places,
)
from anomaly.types import Floats, Ints, Rows

MAGIC = b"FSW1"


@dataclass(frozen=True, slots=True)
class Part:
    """State of one deployment; row ``i`` of each array belongs to the series ``keys[i]``."""

    keys: Ints
    state: State
    counts: Rows
    excursions: Rows
    last: Floats
    last_ms: Ints


@dataclass(frozen=True, slots=True)
class ShardState:
    """Series, readings that wait for the watermark, and each deployment's part."""

    series: Rows
    waiting: Rows
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What one call said: the last telling per excursion, readings judged or waiting, readings too late; ``astray``:
    what is to be judged again in order (``moments.ASTRAY``), because it came too late or in the backlog."""

    state: ShardState
    told: Rows
    readings: int
    late: int
    astray: Rows


@dataclass(frozen=True)
class Shard:
    """A set of deployments with the watermark's ``wait_ms``.

    ``also`` are signals that are taken in though nothing looks at them now: the signals of all models that could be
    promoted, since which signals are taken in decides which readings are late.
    """

    deployments: tuple[Deployment, ...]
    wait_ms: int
    also: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_set(self.deployments)

    @property
    def version(self) -> str:
        """Changes with the declared set and the watermark, not with models: a state goes on when one is promoted."""
        declared = set_version([one for one in self.deployments if not one.model])
        also = f"-{zlib.crc32(json.dumps(sorted(self.also)).encode()):08x}" if self.also else ""
        return f"{declared}-{self.wait_ms}{also}"

    @property
    def signals(self) -> Ints:
        """Catalogue numbers that are taken in."""
        return np.unique([*self.also, *(signal for one in self.deployments for signal in one.signals)])

    def start(self) -> ShardState:
        return ShardState(
            np.zeros(0, SERIES),
            np.zeros(0, SAMPLE),
            tuple(_fresh(one, np.zeros(0, np.int64)) for one in self.deployments),
        )

    def run(self, state: ShardState, samples: Rows) -> Step:
        """Take readings in log order (``moments.SAMPLE``); the given state stays as it was."""
        samples = samples[np.isin(samples["signal"], self.signals)]
        arrived = arrive(state.series, samples, self.wait_ms)
        everything = np.concatenate([state.waiting, arrived.accepted])
        _, waiting_at = places(arrived.series["key"], _keys(state.waiting))
        chosen, place = cells(everything, np.append(waiting_at, arrived.place))
        ends = (chosen["at_ms"] // STEP_MS + 1) * STEP_MS
        ready = ends <= arrived.series["newest_ms"][place] - self.wait_ms
        parts, told = [], []
        for number, (deployment, part) in enumerate(zip(self.deployments, state.parts, strict=True)):
            rows = moments(chosen[ready], place[ready], deployment.signals)
            part, said = _judge(deployment, part, arrived.series["key"], rows, arrived.late)
            said["deployment"] = number
            parts.append(part)
            told.append(_last(said))
        everything_told = np.concatenate([np.zeros(0, TOLD), *told])
        return Step(
            ShardState(arrived.series, chosen[~ready], tuple(parts)), everything_told, len(arrived.accepted),
            len(arrived.late), _astray(samples, arrived.late, arrived.series, everything_told),
        )  # fmt: skip

    def dump(self, state: ShardState) -> bytes:
        """Magic, header, arrays, CRC-32."""
        sizes = [
            [one.state_key, len(part.keys), sum(array.nbytes for array in _arrays(part))]
            for one, part in zip(self.deployments, state.parts, strict=True)
        ]
        told = {"set": self.version, "series": len(state.series), "waiting": len(state.waiting), "parts": sizes}
        head = json.dumps(told).encode()
        arrays = [state.series, state.waiting, *(array for part in state.parts for array in _arrays(part))]
        body = b"".join([MAGIC, len(head).to_bytes(4, "little"), head, *(array.tobytes() for array in arrays)])
        return body + zlib.crc32(body).to_bytes(4, "little")

    def load(self, data: bytes) -> ShardState:
        """Parts of models that are no longer here are left out, those of new ones begin empty.

        Raises BadState when the bytes are damaged or belong to another declared set.
        """
        body = memoryview(data)[:-4]
        if data[:4] != MAGIC or zlib.crc32(body) != int.from_bytes(data[-4:], "little"):
            raise BadState("damaged or not a shard's state; start afresh and replay the topics")
        size = int.from_bytes(data[4:8], "little")
        told = json.loads(data[8 : 8 + size])
        if told["set"] != self.version:
            raise BadState(
                f"written by the set {told['set']}, this is {self.version}; start afresh and replay the topics"
            )
        reader = _Reader(body, 8 + size)
        series, waiting = reader.take(SERIES, told["series"]), reader.take(SAMPLE, told["waiting"])
        held: dict[str, tuple[int, int]] = {}
        at = reader.at
        for key, count, nbytes in told["parts"]:
            held[key] = at, count
            at += nbytes
        parts = tuple(reader.part(one, *held.get(one.state_key, (at, 0))) for one in self.deployments)
        return ShardState(series, waiting, parts)


def _astray(samples: Rows, late: Late, series: Rows, told: Rows) -> Rows:
    """Backlog lanes are judged beside the live one, not in its order; neither they nor what is said of them counts."""
    back, said = samples[samples["lane"] > 0], told[told["lane"] > 0]
    return astray(
        np.concatenate([back["device"], said["device"], series["key"][late.series] // LANES]),
        np.concatenate([back["at_ms"], said["started_ms"], late.at_ms]),
        np.concatenate([back["at_ms"], said["at_ms"], late.at_ms]),
    )  # fmt: skip


def _keys(samples: Rows) -> Ints:
    return np.asarray(samples["device"].astype(np.int64) * LANES + samples["lane"])


def _fresh(deployment: Deployment, keys: Ints) -> Part:
    count, columns = len(keys), len(deployment.signals)
    counts, rows = excursions.fresh(deployment, count)
    return Part(
        keys, deployment.detector.start(count), counts, rows, np.full((count, columns), np.nan),
        np.zeros((count, columns), np.int64),
    )  # fmt: skip


def _grown(deployment: Deployment, part: Part, keys: Ints) -> Part:
    if len(keys) == len(part.keys):
        return part
    new = _fresh(deployment, keys[len(part.keys) :])
    state = replace(part.state, rows=np.concatenate([part.state.rows, new.state.rows]))
    joined = (np.concatenate(pair) for pair in zip(_arrays(part)[2:], _arrays(new)[2:], strict=True))
    return Part(keys, state, *joined)


def _judge(deployment: Deployment, part: Part, keys: Ints, rows: Moments, late: Late) -> tuple[Part, Rows]:
    """Judge complete moments; ``rows`` and ``late`` speak of places in ``keys``."""
    over = keys[rows.place[rows.at_ms >= deployment.until_ms]]
    rows = rows.take((rows.at_ms >= deployment.since_ms) & (rows.at_ms < deployment.until_ms))
    if not len(rows):
        return _over(deployment, _lost(part, keys, late, deployment), over, np.zeros(0, TOLD))
    mine, at = places(part.keys, keys[rows.place])
    part, rows = _grown(deployment, part, mine), replace(rows, place=at)
    mislaid = _own(late, keys, part.keys, deployment)
    lost_ms = lost_until(rows, mislaid)
    values, last, last_ms = held(rows, part.last, part.last_ms, deployment.hold_ms)
    awaited = np.asarray(np.isfinite(rows.values[:, list(deployment.awaits)]).any(axis=1))
    judged = rows.take(awaited)
    regime = deployment.regime.of(values)[awaited]
    columns = values[awaited][:, : deployment.detector.channels]
    readings = Readings(judged.place, judged.at_ms, columns, regime)
    state, verdict = deployment.detector.run(part.state, readings)
    both = (part.counts, part.excursions)
    (counts, rests), told = excursions.follow(deployment, both, readings, verdict, lost_ms[awaited])
    key = part.keys[told["device"]]
    told["device"], told["lane"] = key // LANES, key % LANES
    after = Part(part.keys, state, counts, rests, last, last_ms)
    return _over(deployment, _lost(after, part.keys, mislaid, deployment), over, told)


def _over(deployment: Deployment, part: Part, over: Ints, told: Rows) -> tuple[Part, Rows]:
    """Also what is said of series that are past the deployment's end; ``over`` are their keys, repeated."""
    ended = np.flatnonzero(np.isin(part.keys, over))
    if not len(ended):
        return part, told
    (counts, rests), closed = excursions.end(deployment, (part.counts, part.excursions), ended)
    key = part.keys[closed["device"]]
    closed["device"], closed["lane"] = key // LANES, key % LANES
    return replace(part, counts=counts, excursions=rests), np.concatenate([told, closed])


def _own(late: Late, keys: Ints, own: Ints, deployment: Deployment) -> Late:
    """The late readings of a deployment's signals and series, as places among its own."""
    mine = np.isin(late.signal, deployment.signals) & np.isin(keys[late.series], own)
    _, at = places(own, keys[late.series[mine]])
    return Late(at, late.signal[mine], late.at_ms[mine], late.frontier_ms[mine])


def _lost(part: Part, keys: Ints, late: Late, deployment: Deployment) -> Part:
    """Remember the newest late reading of each series for the moments that follow."""
    mine = late if keys is part.keys else _own(late, keys, part.keys, deployment)
    if not len(mine):
        return part
    rows = part.excursions.copy()
    np.maximum.at(rows["lost_ms"], mine.series, mine.at_ms)
    return replace(part, excursions=rows)


def _last(told: Rows) -> Rows:
    """The last telling of each excursion: what a batch says in between nobody would read."""
    order = np.lexsort((told["revision"], told["started_ms"], told["lane"], told["device"]))
    told = told[order]
    if len(told) < 2:
        return told
    same = np.logical_and.reduce([told[name][1:] == told[name][:-1] for name in ("device", "lane", "started_ms")])
    last: Rows = told[np.append(~same, True)]
    return last


def _arrays(part: Part) -> tuple[Rows, ...]:
    return (part.keys, part.state.rows, part.counts, part.excursions, part.last, part.last_ms)


@dataclass(slots=True)
class _Reader:
    data: memoryview
    at: int

    def take(self, kind: Any, count: int, columns: int = 0) -> Rows:
        size = count * max(columns, 1) if columns else count
        array: Rows = np.frombuffer(self.data, kind, size, self.at)
        self.at += array.nbytes
        return np.array(array.reshape(count, columns) if columns else array)

    def part(self, deployment: Deployment, at: int, count: int) -> Part:
        self.at = at
        blank = _fresh(deployment, np.zeros(0, np.int64))
        columns = len(deployment.signals)
        keys = self.take(np.int64, count)
        state = replace(blank.state, rows=self.take(blank.state.rows.dtype, count))
        counts, rows = self.take(blank.counts.dtype, count), self.take(blank.excursions.dtype, count)
        return Part(
            keys, state, counts, rows, self.take(np.float64, count, columns), self.take(np.int64, count, columns)
        )


def split(samples: Rows, shards: int) -> Iterator[tuple[int, Rows]]:
    """Readings by the shard of their device, each in the order they came."""
    shard = samples["device"] % shards
    order = np.argsort(shard, kind="stable")
    cuts = np.searchsorted(shard[order], np.arange(1, shards))
    for number, chosen in enumerate(np.split(order, cuts)):
        if len(chosen):
            yield number, samples[chosen]


def together(blobs: Sequence[bytes]) -> Rows:
    """Readings from the bytes of several arrays of them."""
    return np.frombuffer(b"".join(blobs), SAMPLE)
