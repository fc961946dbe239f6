"""The live stream: what changed in the store, to many clients, at a pace each of them can take.

One look at the store per tenant serves all its clients. A client's mailbox holds the newest value per asset and signal
only: what a slow client does not take is replaced, and it is told how many values it skipped. A mailbox that outgrows
its bound is emptied and its client told to load afresh. An event's id is a position in the store's history
(``queries.changes``), so a client resumes with any API process, also after a restart.

Source: the store, not Kafka. What is shown is then what is stored and tenant-checked, and the look is cheap: a pause of
at least eight times its own duration follows each, so a tenant with listeners costs a ninth of a core at the most.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from api.errors import QueryTooLong, StoreUnavailable
from api.metrics import Metrics
from api.queries.changes import MOST_NOTICES, Changes

MOST_CHANGES = 50_000
"""Rows of one look; more (a store that was restored) make clients load afresh."""
IDLE_FACTOR = 8.0
MAX_RETRY_S = 5.0

Value = Mapping[str, Any]
Key = tuple[str, str]

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Looks at one tenant's store."""

    async def position(self, tenant_id: int) -> int: ...
    async def since(self, tenant_id: int, position: int, limit: int) -> Changes: ...


@dataclass(frozen=True, slots=True)
class Interest:
    """What a client wants to hear of; empty means all."""

    assets: frozenset[str] = frozenset()
    signals: frozenset[str] = frozenset()

    def concerns(self, notice: Value) -> bool:
        """A crash is told whichever signals were asked for."""
        return not self.assets or notice["asset"] in self.assets

    def wants(self, value: Value) -> bool:
        return (not self.assets or value["asset"] in self.assets) and (
            not self.signals or value["signal"] in self.signals
        )


@dataclass(frozen=True, slots=True)
class Frame:
    """What one client gets at once. ``reset``: load afresh; ``skipped``: values replaced since the last frame."""

    position: int
    values: list[Value]
    skipped: int = 0
    reset: bool = False
    notices: tuple[Value, ...] = ()


@dataclass
class Mailbox:
    """Newest value per asset and signal for one client; never more than ``most`` of them."""

    interest: Interest
    most: int
    position: int
    """Where the hub's next look may begin for this client; what waits here may lie before it."""
    taken: int = -1
    """Up to here the client has everything that concerns it: what it may be told as the place to come back to."""
    ended: bool = False
    """Nobody looks any more (the process stops, or a defect): the stream closes, and its client comes back."""
    _values: dict[Key, Value] = field(default_factory=dict)
    _notices: deque[Value] = field(default_factory=lambda: deque(maxlen=MOST_NOTICES))
    _skipped: int = 0
    _reset: bool = False
    _filled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.taken < 0:
            self.taken = self.position

    def put(self, values: Iterable[Value], position: int) -> None:
        self.position = position
        for value in values:
            if self._reset or not self.interest.wants(value):
                continue
            key = (value["asset"], value["signal"])
            replaced = self._values.get(key)
            if replaced is not None and replaced["measured_at"] > value["measured_at"]:
                continue
            self._skipped += replaced is not None
            self._values[key] = value
            if len(self._values) > self.most:
                self.reset(position)
        if self._values:
            self._filled.set()
        elif not (self._notices or self._reset):
            self.taken = position

    def notify(self, notices: Iterable[Value]) -> None:
        """Crash notices wait beside the values and are never replaced; beyond the bound the oldest goes, and the client
        is told to load afresh."""
        for notice in filter(self.interest.concerns, notices):
            self._reset |= len(self._notices) == MOST_NOTICES
            self._notices.append(notice)
            self._filled.set()

    def reset(self, position: int) -> None:
        """Forget what waits: the client will load afresh."""
        self.position = position
        self._skipped += len(self._values)
        self._values = {}
        self._reset = True
        self._filled.set()

    def end(self) -> None:
        self.ended = True
        self._filled.set()

    def take(self) -> Frame:
        """Everything that waits; the mailbox is empty afterwards."""
        frame = Frame(self.position, list(self._values.values()), self._skipped, self._reset, tuple(self._notices))
        self._values, self._skipped, self._reset = {}, 0, False
        self._notices.clear()
        self._filled.clear()
        self.taken = self.position
        return frame

    async def wait(self, timeout_s: float) -> bool:
        """Whether something waits, after at most ``timeout_s``."""
        try:
            await asyncio.wait_for(self._filled.wait(), timeout_s)
        except TimeoutError:
            return False
        return True


@dataclass
class _Room:
    """The clients of one tenant and the task that looks at the store for them."""

    boxes: dict[int, Mailbox] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    told_notices: frozenset[tuple[int, str]] = frozenset()
    told: dict[tuple[int, str], Value] = field(default_factory=dict)
    """Rows of the last look: while a transaction is open a look repeats what came after it began."""

    def fresh(self, changes: Changes) -> Changes:
        """The changes without what the last look gave already."""
        now = {(row["device_key"], row["signal"]): row for row in changes.rows}
        fresh = [row for key, row in now.items() if self.told.get(key) != row]
        self.told = dict(now)
        came = {(notice["device_key"], notice["event_id"]): notice for notice in changes.notices}
        notices = [notice for key, notice in came.items() if key not in self.told_notices]
        self.told_notices = frozenset(came)
        return Changes(changes.position, fresh, changes.whole, notices)

    def fail(self, task: asyncio.Task[None]) -> None:
        """The looking task has ended: its clients are sent away to come back."""
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("event=stream_failed", exc_info=task.exception())
        self.task = None
        for box in self.boxes.values():
            box.end()


@dataclass
class Hub:
    """Looks for each tenant that has clients; nobody listening, nothing asked."""

    watcher: Watcher
    metrics: Metrics
    poll_s: float
    pending: int
    elapsed_s: Callable[[], float]
    closing: bool = False
    _rooms: dict[int, _Room] = field(default_factory=dict)

    async def join(self, tenant_id: int, interest: Interest, since: int | None) -> Mailbox:
        """A mailbox that hears every change after ``since`` (None: after now). Raises StoreUnavailable."""
        if since is None:
            mailbox = Mailbox(interest, self.pending, await self.watcher.position(tenant_id))
            mailbox.put((), mailbox.position)
        else:
            mailbox = Mailbox(interest, self.pending, since)
            _deliver(mailbox, await self.watcher.since(tenant_id, since, MOST_CHANGES))
        room = self._rooms.setdefault(tenant_id, _Room())
        room.boxes[id(mailbox)] = mailbox
        if room.task is None:
            room.task = asyncio.create_task(self._look(tenant_id, room), name=f"live-{tenant_id}")
            room.task.add_done_callback(room.fail)
        self.metrics.streams.inc()
        return mailbox

    def leave(self, tenant_id: int, mailbox: Mailbox) -> None:
        room = self._rooms[tenant_id]
        del room.boxes[id(mailbox)]
        self.metrics.streams.dec()
        if room.boxes:
            return
        if room.task is not None:
            room.task.cancel()
        del self._rooms[tenant_id]

    def close(self) -> None:
        """Every stream ends soon (the process stops); safe to call from a signal handler or another thread."""
        self.closing = True

    async def _look(self, tenant_id: int, room: _Room) -> None:
        retry_s = self.poll_s
        while not self.closing:
            started_s = self.elapsed_s()
            try:
                # the oldest position of any client: one who joined since the last look misses nothing
                since = min(box.position for box in room.boxes.values())
                changes = room.fresh(await self.watcher.since(tenant_id, since, MOST_CHANGES))
                for box in room.boxes.values():
                    _deliver(box, changes)
                retry_s = self.poll_s
                await asyncio.sleep(max(self.poll_s, IDLE_FACTOR * (self.elapsed_s() - started_s)))
            except (StoreUnavailable, QueryTooLong) as error:
                log.warning("event=stream_waits reason=%s", error)
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, MAX_RETRY_S)


def _deliver(mailbox: Mailbox, changes: Changes) -> None:
    mailbox.notify(changes.notices)
    if changes.whole:
        mailbox.put(changes.rows, changes.position)
    else:
        mailbox.reset(changes.position)
