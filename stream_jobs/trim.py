"""When may a record leave the log? When it is archived, its file has just been hashed and is the one that was written,
it is stored, and it is older than the replay window. Never otherwise; what stands in the way is an alarm.

The decision is pure; ``Trimmer`` is the loop around it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from contracts.errors import TryLater
from stream_jobs.log import LogState
from stream_jobs.metrics import TrimMetrics
from stream_jobs.parquet import Place
from stream_jobs.sinks.manifest import KeptFile
from stream_jobs.sinks.trimming import Alarm

FILES_PER_ROUND = 50
"""Files of one partition that a round hashes, unless one roll wrote more: no round is busy for long."""

READ_BYTES = 1 << 20
EASED = 0.9
"""The log's size must fall to this share of its limit before the alarm is cleared."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Extents:
    """What is known of one partition: all are offsets, and everything below them is so."""

    begin: int
    """Already gone."""
    archived: int
    stored: int
    aged: int
    """Older than the replay window."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything below ``to`` may go once ``files`` are hashed; ``missing`` records are in no file."""

    to: int
    files: tuple[KeptFile, ...] = ()
    missing: int = 0


def plan_trim(extents: Extents, files: Sequence[KeptFile], most: int = FILES_PER_ROUND) -> Plan:
    """``files`` of this partition in any order. Files that were written together go together, so none is cut."""
    limit = min(extents.archived, extents.stored, extents.aged)
    to, chosen = extents.begin, list[KeptFile]()
    for roll in rolls(one for one in files if one.last_offset >= extents.begin):
        start, end = roll[0].first_offset, max(one.last_offset for one in roll) + 1
        if start > to or end > limit or (chosen and len(chosen) + len(roll) > most):
            return Plan(to, tuple(chosen), max(0, min(start, limit) - to))
        if missing := end - to - sum(one.records for one in roll):
            return Plan(to, tuple(chosen), missing)
        to, chosen = end, [*chosen, *roll]
    return Plan(to, tuple(chosen), max(0, limit - to))


def spared(plan: Plan, begin: int, damaged: Sequence[KeptFile]) -> int:
    """How far a plan may still be carried out when some of its files are damaged."""
    for roll in rolls(plan.files):
        if any(one in damaged for one in roll):
            return max(begin, roll[0].first_offset)
    return plan.to


def rolls(files: Iterable[KeptFile]) -> list[list[KeptFile]]:
    """Files by the offsets that they share, in order: what a roll of the archive wrote for several tenants and days."""
    groups: list[list[KeptFile]] = []
    end = -1
    for one in sorted(files, key=lambda file: file.first_offset):
        if one.first_offset > end:
            groups.append([])
        groups[-1].append(one)
        end = max(end, one.last_offset)
    return groups


def intact(folder: Path, file: KeptFile) -> bool:
    """Whether a file is there and is, byte for byte, the one that the manifest names."""
    digest = hashlib.sha256()
    try:
        with (folder / file.path).open("rb") as data:
            while piece := data.read(READ_BYTES):
                digest.update(piece)
    except OSError:
        return False
    return digest.digest() == file.sha256


def size_bytes(folder: Path, prefix: str) -> int:
    """Bytes of a broker's folder that belong to topics with this prefix; files that go meanwhile count nothing."""
    total = 0
    for file in folder.glob(f"{prefix}.*/*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total


class TrimStore(Protocol):
    """What the trimmer asks of the store (``sinks.trimming``)."""

    def files(self) -> list[KeptFile]: ...
    def archived(self) -> Mapping[Place, int]: ...
    def stored(self) -> Mapping[Place, int]: ...
    def verified(self, files: Sequence[KeptFile]) -> None: ...
    def trimmed(self, place: Place, to: int) -> None: ...
    def alarms(self, now: Sequence[Alarm]) -> list[Alarm]: ...
    def disconnect(self) -> None: ...


class RawTopics(Protocol):
    """What the trimmer asks of Kafka (``log.LogReader``)."""

    def state(self) -> LogState: ...
    def since(self, moment_ms: int) -> dict[tuple[str, int], int]: ...
    def delete_before(self, offsets: Mapping[tuple[str, int], int]) -> None: ...


@dataclass(frozen=True, slots=True)
class LogLimit:
    """Where the broker's files lie and how many bytes they may be; 0 or no folder: not watched."""

    folder: Path | None
    prefix: str
    bytes: int


@dataclass(slots=True)
class Trimmer:
    """One round every ``interval_s``; what is not to be had is asked again in the next one."""

    topics: RawTopics
    store: TrimStore
    folder: Path
    window_ms: int
    limit: LogLimit
    interval_s: float
    clock_ms: Callable[[], int]
    metrics: TrimMetrics
    _log_full: bool = False

    def run(self, stop: threading.Event) -> None:
        """Loop for a thread."""
        try:
            while not stop.wait(self.interval_s):
                self._round()
        finally:
            self.store.disconnect()

    def _round(self) -> None:
        try:
            self.once()
        except TryLater as error:
            log.warning('event=trimmer_waits reason="%s"', error)

    def once(self) -> int:
        """Trim what may go, raise and clear alarms; how many records went. Raises TryLater."""
        state, aged = self.topics.state(), self.topics.since(self.clock_ms() - self.window_ms)
        archived, stored, files = self.store.archived(), self.store.stored(), self.store.files()
        alarms: list[Alarm] = self._watch_size()
        gone = 0
        for name, extents in state.extents.items():
            for number, extent in extents.items():
                place = Place(name, state.ids[name], number)
                facts = Extents(extent.begin, archived.get(place, 0), stored.get(place, 0), aged.get((name, number), 0))
                mine = [one for one in files if (one.topic_id, one.partition) == (place.topic_id, number)]
                gone += self._trim(place, facts, mine, alarms)
        self._tell(self.store.alarms(alarms))
        self.metrics.alarms({one.alarm for one in alarms})
        return gone

    def _trim(self, place: Place, facts: Extents, files: Sequence[KeptFile], alarms: list[Alarm]) -> int:
        plan = plan_trim(facts, files)
        if plan.missing:
            alarms.append(
                Alarm("archive_incomplete", _name(place), f"{plan.missing} archived records from offset {facts.begin} "
                      "on are in no file of the manifest; nothing is trimmed, Kafka still holds them")
            )  # fmt: skip
        if plan.to <= facts.begin:
            return 0
        damaged = [one for one in plan.files if not intact(self.folder, one)]
        alarms += [
            Alarm("archive_damaged", one.path, "the file is not the one that was written; the log still holds offsets "
                  f"{one.first_offset} to {one.last_offset}, nothing from there on is trimmed: put back a copy")
            for one in damaged
        ]  # fmt: skip
        to = spared(plan, facts.begin, damaged)
        self.store.verified([one for one in plan.files if one not in damaged])
        if to <= facts.begin:
            return 0
        self.store.trimmed(place, to)
        self.topics.delete_before({(place.topic, place.partition): to})
        log.info("event=trimmed topic=%s partition=%d from=%d to=%d", place.topic, place.partition, facts.begin, to)
        self.metrics.trimmed(place.topic, to - facts.begin)
        return to - facts.begin

    def _watch_size(self) -> list[Alarm]:
        limit = self.limit
        if limit.folder is None or not limit.bytes:
            return []
        size = size_bytes(limit.folder, limit.prefix)
        self.metrics.log_bytes(size, limit.bytes)
        self._log_full = size >= limit.bytes * (EASED if self._log_full else 1)
        if not self._log_full:
            return []
        detail = (
            f"the log holds {size} bytes, its limit is {limit.bytes}; nothing is lost: devices keep what Kafka does "
            "not take; give it more disk, or shorten the replay window (trim_after_h)"
        )
        return [Alarm("log_size", limit.prefix, detail)]

    def _tell(self, changes: Sequence[Alarm]) -> None:
        for one in changes:
            log.error(
                'event=alarm alarm=%s place=%s raised=%s detail="%s"', one.alarm, one.place, one.raised, one.detail
            )


def _name(place: Place) -> str:
    return f"{place.topic}/{place.partition}"
