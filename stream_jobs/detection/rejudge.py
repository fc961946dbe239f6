"""Late readings judged again, in order, from the store: a thread beside the detection query.

The query judges what it gets, lane by lane. What it met out of order waits in ``late_due``; as soon as the store holds
it, the device's history is judged from before it on, in the order of event time, and what was said is corrected. From
then on the device is followed, since the query's own state has not seen that order: until its late readings lie
``FOLLOW_MS`` back and nothing of it is open. Devices are judged together, half an hour of each at a time.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anomaly.corrections import Change, changes
from anomaly.excursions import TOLD
from anomaly.history import Trust, in_order, of_device, quiet, together
from anomaly.moments import SAMPLE
from anomaly.shard import Shard, ShardState
from anomaly.types import Rows
from contracts.errors import Rejected, TryLater
from contracts.packet import FIRST_BAD_QUALITY
from stream_jobs.sinks.findings import Owned
from stream_jobs.sinks.judgements import (
    MOST_SNAPSHOTS,
    SNAPSHOTS_APART_MS,
    Due,
    Held,
    Judged,
    JudgementStore,
    Snapshot,
    said_of,
)

MOST_DEVICES = 50
"""Judged together; with half an hour of ten signals each that is 40 MB of readings."""

CHUNK_MS = SNAPSHOTS_APART_MS
MARGIN_MS = 3_600_000
"""So much before the first late reading the history begins: an excursion that it changes may have begun before it."""

LOOKBACK_MS = 2 * 3_600_000
SETTLE_MS = 60_000
"""So far behind the device's newest reading the history ends: what is in order may still be on its way."""

FOLLOW_MS = 3_600_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reach:
    """What bounds the work. ``late_ms``: readings that lie further behind the device's newest are not judged again, nor
    is a snapshot used that lies further back. ``lookback_ms``: history before the first late reading where there is no
    snapshot. ``settle_ms``: how far a history stays behind the newest. ``follow_ms``: how long it is followed."""

    late_ms: int
    lookback_ms: int = LOOKBACK_MS
    settle_ms: int = SETTLE_MS
    follow_ms: int = FOLLOW_MS


@dataclass(slots=True)
class _Course:
    """A device on its way through its history: readings before ``at_ms`` are in the state."""

    due: Due
    from_ms: int
    to_ms: int
    since_ms: int
    state: ShardState
    at_ms: int
    told: list[Rows] = field(default_factory=list)
    kept: list[Snapshot] = field(default_factory=list)


@dataclass(slots=True)
class Rejudge:
    """``current`` gives what judges now; ``corrected`` is told how many findings each round corrected, by kind."""

    store: JudgementStore
    current: Callable[[], Shard]
    reach: Reach
    interval_s: float
    corrected: Callable[[Mapping[Change, int]], None]
    shard: Shard = field(init=False)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``; a store that is away is asked again."""
        while True:
            again = False
            try:
                again = self.store.open() and self.once()
            except TryLater as error:
                log.warning('event=rejudge_waits reason="%s"', error)
            except (Rejected, ValueError) as error:
                log.error('event=rejudge_failed reason="%s" note="what came late waits; the stream goes on"', error)
            if stop.is_set() or (not again and stop.wait(self.interval_s)):
                break
        self.store.close()

    def once(self) -> bool:
        """One round; whether more may wait. Raises StoreBusy."""
        self.shard = self.current()
        due = self.store.due(2 * self.reach.settle_ms, MOST_DEVICES)
        courses = [course for one in due if (course := self._begin(one)) is not None]
        while any(course.at_ms < course.to_ms for course in courses):
            self._advance([course for course in courses if course.at_ms < course.to_ms])
        kinds: Counter[Change] = Counter()
        for course in courses:
            kinds.update(self._take(course))
        self.corrected(kinds)
        return len(due) == MOST_DEVICES

    def _begin(self, due: Due) -> _Course | None:
        """Where a device's history begins and ends; None: nothing of it can be judged yet."""
        if due.newest_ms is None:
            return None
        to_ms = due.newest_ms - self.reach.settle_ms
        from_ms = max(due.from_ms, due.newest_ms - self.reach.late_ms) if due.notes else due.from_ms
        if from_ms > due.from_ms:
            log.warning(
                'event=too_late_to_judge device_key=%d hours=%.1f note="findings of that time stay as they are"',
                due.device_key, (from_ms - due.from_ms) / 3_600_000,
            )  # fmt: skip
        first_ms = min(from_ms - MARGIN_MS if due.notes else from_ms, to_ms)
        known = self.store.snapshot(due.device_key, self.shard.version, first_ms, first_ms - self.reach.late_ms)
        if known is not None:
            state = self.shard.load(known.state)
            return _Course(due, known.at_ms, to_ms, known.since_ms, state, known.at_ms)
        oldest_ms = first_ms - self.reach.lookback_ms
        since_ms = oldest_ms if self.store.has_older(due.device_key, oldest_ms) else 0
        return _Course(due, oldest_ms, to_ms, since_ms, self.shard.start(), oldest_ms)

    def _advance(self, courses: Sequence[_Course]) -> None:
        """Half an hour of each, judged by one call."""
        ends = [min(course.at_ms + CHUNK_MS, course.to_ms) for course in courses]
        rows = [self._read(course, end_ms) for course, end_ms in zip(courses, ends, strict=True)]
        step = self.shard.run(together([course.state for course in courses]), in_order(np.concatenate(rows)))
        for course, end_ms, mine in zip(courses, ends, rows, strict=True):
            course.at_ms = end_ms
            if not len(mine):
                continue
            device = course.due.device_key
            course.state = of_device(step.state, device)
            course.told.append(step.told[step.told["device"] == device])
            course.kept.append(Snapshot(end_ms, course.since_ms, self.shard.dump(course.state)))

    def _read(self, course: _Course, end_ms: int) -> Rows:
        hot, compacted = self.store.history(course.due.device_key, self.shard.signals.tolist(), course.at_ms, end_ms)
        rows = samples_of(course.due.device_key, hot, compacted)
        inside = (rows["at_ms"] >= course.at_ms) & (rows["at_ms"] < end_ms)
        return rows[inside & np.isin(rows["signal"], self.shard.signals)]

    def _take(self, course: _Course) -> Counter[Change]:
        """Correct the findings of one device."""
        due = course.due
        told = _last(np.concatenate([np.zeros(0, TOLD), *course.told]))
        judged = Judged(
            due, course.from_ms, course.to_ms, course.since_ms, told, course.kept[-MOST_SNAPSHOTS:], quiet(course.state)
        )
        changed = self.store.take(judged, self.shard.version, self.shard.deployments, self._decide)
        if judged.quiet:
            self.store.release(due.device_key, course.to_ms - self.reach.follow_ms)
        if changed or due.notes:
            log.info(
                "event=judged_again device_key=%d hours=%.1f corrected=%d",
                due.device_key, (course.to_ms - course.from_ms) / 3_600_000, len(changed),
            )  # fmt: skip
        return Counter(changed.values())

    def _decide(self, one: Judged, held: Mapping[str, Held], owned: Mapping[str, Owned]) -> Mapping[str, Change]:
        names = {name: (found.finding.deployment, found.finding.deployment_version) for name, found in owned.items()}
        names |= {name: (found.deployment, found.version) for name, found in held.items()}
        began = {name: found.finding.started_at_ms for name, found in owned.items()}
        began |= {name: found.stored.said.started_ms for name, found in held.items()}
        judges = {(deployment.name, deployment.version): deployment for deployment in self.shard.deployments}
        trust = Trust(one.since_ms)

        def trusted(name: str) -> bool:
            judge = judges.get(names[name])
            return judge is not None and trust.in_finding(judge, began[name])

        stored = {name: found.stored for name, found in held.items()}
        said = {name: said_of(found) for name, found in owned.items()}
        return changes(stored, said, one.from_ms, one.to_ms - self.shard.wait_ms, trusted)


def samples_of(device_key: int, hot: Sequence[tuple[object, ...]], compacted: Sequence[tuple[object, ...]]) -> Rows:
    """Good, finite readings of packets and of compacted rows (``JudgementStore.history``), in no order."""
    parts = [_compacted(compacted), *map(_packet, hot)]
    rows = np.concatenate(parts)
    rows["device"] = device_key
    return rows


def _packet(row: tuple[object, ...]) -> Rows:
    epoch, seq, base_ms, signals, offsets_ms, values, qualities = row
    rows = np.zeros(len(signals), SAMPLE)  # type: ignore[arg-type]
    rows["signal"], rows["value"], rows["epoch"], rows["seq"] = signals, values, epoch, seq
    rows["at_ms"] = np.asarray(offsets_ms, np.int64) + base_ms  # type: ignore[operator]
    rows["pos"] = np.arange(1, len(rows) + 1)
    good = np.isfinite(rows["value"])
    if qualities is not None:
        good &= np.asarray(qualities) < FIRST_BAD_QUALITY
    return np.asarray(rows[good])


def _compacted(found: Sequence[tuple[object, ...]]) -> Rows:
    rows = np.zeros(len(found), SAMPLE)
    if found:
        columns = list(zip(*found, strict=True))
        for name, column in zip(("signal", "epoch", "seq", "pos", "at_ms", "value"), columns, strict=False):
            rows[name] = np.array(column, dtype=SAMPLE[name])
        rows = rows[np.isfinite(rows["value"]) & (np.array(columns[6]) < FIRST_BAD_QUALITY)]
    return rows


def _last(told: Rows) -> Rows:
    """The last telling of each excursion of one device."""
    told = np.sort(told, order=["deployment", "started_ms", "revision"])
    again = (told["deployment"][1:] == told["deployment"][:-1]) & (told["started_ms"][1:] == told["started_ms"][:-1])
    return np.asarray(told[np.append(~again, True)]) if len(told) else told
