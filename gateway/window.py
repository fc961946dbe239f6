"""Publishes that were received and are not yet PUBACKed, in the order in which they came.

MQTT wants PUBACKs in the order of the publishes; Kafka's delivery reports come in any order. So an entry is
released when it and everything before it is finished. Entries remember the connection on which they came:
packet ids are reused on the next one, and a late PUBACK would acknowledge another publish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from gateway.admission import Identity, Record


class Entry:
    """One publish on its way. ``mid`` is 0 when the broker waits for no PUBACK (QoS 0)."""

    __slots__ = (
        "asked", "connection", "device", "finished", "identity", "mid", "received_s", "record", "rejected", "urgent",
    )  # fmt: skip

    def __init__(
        self,
        mid: int,
        connection: int,
        record: Record | None,
        received_s: float,
        device: str = "",
        identity: Identity | None = None,
        *,
        asked: bool = False,
        urgent: bool = False,
        rejected: bool = False,
    ) -> None:
        self.mid = mid
        self.connection = connection
        self.record = record
        self.received_s = received_s
        self.device = device
        self.identity = identity
        self.asked = asked
        self.urgent = urgent
        self.rejected = rejected
        self.finished = record is None

    @property
    def size_bytes(self) -> int:
        return len(self.record.value) if self.record else 0


class AckWindow:
    """First in, first out. The caller asks for ``room`` before it takes more; ``add`` never refuses."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._entries: deque[Entry] = deque()
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    @property
    def room(self) -> int:
        """How many more publishes may be taken; 0: reading must stop until Kafka has answered."""
        return 0 if self._bytes >= self._max_bytes else max(0, self._max_messages - len(self._entries))

    @property
    def oldest_s(self) -> float | None:
        """When the oldest unreleased publish was received, on the caller's clock."""
        return self._entries[0].received_s if self._entries else None

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += entry.size_bytes

    def release(self) -> list[Entry]:
        """Take out the finished prefix."""
        entries, released = self._entries, []
        while entries and entries[0].finished:
            entry = entries.popleft()
            self._bytes -= entry.size_bytes
            released.append(entry)
        return released

    def unfinished(self) -> Iterator[Entry]:
        """What Kafka has not confirmed, oldest first."""
        return (entry for entry in self._entries if not entry.finished)
