"""What passes between a gateway worker and the broker, read on the wire: the order of PUBACKs and what they promise.

No other layer shows a PUBACK out of order: brokers free messages by packet id, and an agent frees its spool only on
the end-to-end acknowledgement. So the promise is held against the bytes themselves.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field

from contracts.topics import UP_STATUS
from gateway.wire import PUBLISH, QOS_1, next_packet, read_publish
from tests.torture.proxy import DOWN

PUBACK = 0x40


@dataclass(slots=True)
class _Wire:
    """One connection: bytes that are not whole packets yet, publishes that await their PUBACK."""

    rest: dict[str, bytes] = field(default_factory=dict)
    owed: deque[tuple[int, str, str]] = field(default_factory=deque)


class Tap:
    """The ear of a proxy in front of the broker; read its findings when the proxy is closed or quiet."""

    def __init__(self) -> None:
        self._wires: dict[int, _Wire] = {}
        self.out_of_order: list[str] = []
        self.promised: set[tuple[str, str]] = set()
        """(device, SHA-256 of the payload) of every PUBACKed publish that is not a heartbeat."""
        self.pubacks = 0

    def __call__(self, number: int, direction: str, data: bytes) -> None:
        wire = self._wires.setdefault(number, _Wire())
        data = wire.rest.get(direction, b"") + data
        at = 0
        while (packet := next_packet(data, at)) is not None:
            at = packet.end
            if direction == DOWN and packet.first & 0xF0 == PUBLISH and packet.first & QOS_1:
                publish = read_publish(data, packet)
                wire.owed.append((publish.packet_id, publish.topic, hashlib.sha256(publish.payload).hexdigest()))
            elif direction != DOWN and packet.first & 0xF0 == PUBACK:
                self._puback(number, wire, int.from_bytes(data[packet.start : packet.start + 2], "big"))
        wire.rest[direction] = data[at:]

    def _puback(self, number: int, wire: _Wire, packet_id: int) -> None:
        self.pubacks += 1
        place = next((at for at, (owed, _, _) in enumerate(wire.owed) if owed == packet_id), None)
        if place is None:
            self.out_of_order.append(f"connection {number}: PUBACK {packet_id} answers nothing")
            return
        _, topic, digest = wire.owed[place]
        if place:
            self.out_of_order.append(f"connection {number}: PUBACK {packet_id} came before {place} older ones")
        del wire.owed[place]
        device, _, channel = topic.removeprefix("v1/").partition("/up/")
        if channel != UP_STATUS:
            self.promised.add((device, digest))
