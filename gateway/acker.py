"""Which confirmations are owed to devices, and when they go out.

Confirmed and rejected sequence numbers gather per device, boot epoch and nonce. They leave when a packet asked
for an acknowledgement, when it was urgent, when there are many, or when the oldest has waited long enough. All
of it may be forgotten without harm: an agent that hears nothing sends again and is answered again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from contracts.acks import Ack
from contracts.ranges import ranges_of
from gateway.admission import Identity

MAX_DEVICES = 50_000
"""Devices with something pending; the longest waiting is forgotten beyond it."""

MAX_NUMBERS = 500
"""Packets pending for one device that are sent at once: at most about 12 KB of message."""

MOST_NUMBERS = 8 * MAX_NUMBERS
"""When the broker takes no acknowledgements, what comes beyond this for one device is forgotten."""


class Due(NamedTuple):
    """An acknowledgement to send now."""

    device: str
    ack: Ack


class _Pending:
    __slots__ = ("confirmed", "rejected", "since_s")

    def __init__(self, since_s: float) -> None:
        self.confirmed: list[int] = []
        self.rejected: list[int] = []
        self.since_s = since_s

    def __len__(self) -> int:
        return len(self.confirmed) + len(self.rejected)


Key = tuple[str, int, int]


class Acker:
    """Bounded and without I/O; time comes in."""

    def __init__(self, after_s: float, max_devices: int = MAX_DEVICES) -> None:
        self._after_s = after_s
        self._max_devices = max_devices
        self._pending: OrderedDict[Key, _Pending] = OrderedDict()
        self._asked: OrderedDict[Key, None] = OrderedDict()
        self.forgotten = 0

    def __len__(self) -> int:
        """Devices with something pending."""
        return len(self._pending)

    def note(self, device: str, identity: Identity, now_s: float, *, rejected: bool, at_once: bool) -> None:
        """Kafka has this packet (or its dead letter)."""
        key = (device, identity.boot_epoch, identity.nonce)
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(now_s)
            if len(self._pending) > self._max_devices:
                self._forget_oldest()
        if len(pending) >= MOST_NUMBERS:
            self.forgotten += 1
            return
        (pending.rejected if rejected else pending.confirmed).append(identity.seq)
        if at_once or len(pending) >= MAX_NUMBERS:
            self._asked[key] = None

    def take(self, now_s: float, limit: int, *, everything: bool = False) -> list[Due]:
        """At most ``limit`` acknowledgements that are due; ``everything`` at the end of a run."""
        due: list[Due] = []
        while self._asked and len(due) < limit:
            due.append(self._pop(self._asked.popitem(last=False)[0]))
        while self._pending and len(due) < limit:
            key, pending = next(iter(self._pending.items()))
            if not everything and now_s - pending.since_s < self._after_s:
                break
            due.append(self._pop(key))
        return due

    def _pop(self, key: Key) -> Due:
        pending = self._pending.pop(key)
        self._asked.pop(key, None)
        device, boot_epoch, nonce = key
        return Due(device, Ack(boot_epoch, nonce, ranges_of(pending.confirmed), ranges_of(pending.rejected)))

    def _forget_oldest(self) -> None:
        key, _ = self._pending.popitem(last=False)
        self._asked.pop(key, None)
        self.forgotten += 1
