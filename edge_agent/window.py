"""What to send next, what is outstanding, what an acknowledgement frees. Pure: no sockets, no clock, no disk.

A packet is *in flight* until the broker's PUBACK, *outstanding* until the gateway's end-to-end acknowledgement.
What stays outstanding too long is due again, ever more slowly, since a gateway that is down must not make the
broker's queue grow. Backlog may use half of the window, so living data always finds room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contracts.packet import Lane
from edge_agent.settings import UplinkSettings

MAX_DOUBLINGS = 8


@dataclass(slots=True)
class Outstanding:
    """One packet that was published at least once."""

    lane: int
    attempts: int
    due_ms: int
    in_flight: bool


class SendWindow:
    """Identities (``spool_index.packet_id``) of what is on its way; times are monotonic milliseconds."""

    def __init__(self, settings: UplinkSettings) -> None:
        self._settings = settings
        self._outstanding: dict[int, Outstanding] = {}
        self._in_flight = 0
        self._backlog = 0
        self._in_flight_limit = settings.in_flight
        self._since_ack_request = 0
        self._ack_request_ms = 0
        self._tokens = float(settings.backlog_packets_per_s)
        self._tokens_ms = 0
        self._next_due_ms = 0

    def __len__(self) -> int:
        """How many packets are outstanding."""
        return len(self._outstanding)

    def __contains__(self, identity: int) -> bool:
        return identity in self._outstanding

    @property
    def in_flight(self) -> int:
        """Published, no PUBACK yet."""
        return self._in_flight

    def connected(self, broker_limit: int, session_present: bool, now_ms: int) -> None:
        """A new connection: what was in flight is due at once; all is when the broker lost its session."""
        self._in_flight_limit = min(self._settings.in_flight, broker_limit)
        for entry in self._outstanding.values():
            if entry.in_flight or not session_present:
                entry.due_ms = now_ms
            entry.in_flight = False
        self._in_flight = 0
        self._next_due_ms = now_ms

    def resend_all(self, now_ms: int, first_id: int = 0, last_id: int = 1 << 63) -> None:
        """The cloud asked for everything again, or for the identities of a range (both ends included)."""
        for key, entry in self._outstanding.items():
            if first_id <= key <= last_id:
                entry.due_ms = now_ms
        self._next_due_ms = now_ms

    def room(self, lane: Lane, now_ms: int) -> int:
        """How many packets of a lane may be published for the first time now."""
        free = min(self._in_flight_limit - self._in_flight, self._settings.window - len(self._outstanding))
        if lane == Lane.BACKLOG:
            self._refill(now_ms)
            free = min(free, self._settings.window // 2 - self._backlog, int(self._tokens))
            free = min(free, max(1, self._in_flight_limit // 2) - self._in_flight)
        if lane == Lane.PRIORITY:
            free = self._in_flight_limit - self._in_flight
        return max(0, free)

    def due(self, now_ms: int) -> list[int]:
        """Identities to publish again now, oldest first, as many as may be in flight."""
        free = self._in_flight_limit - self._in_flight
        if now_ms < self._next_due_ms or free <= 0:
            return []
        waiting = [(entry.due_ms, key) for key, entry in self._outstanding.items() if not entry.in_flight]
        ready = sorted(key for due_ms, key in waiting if due_ms <= now_ms)[:free]
        later = [due_ms for due_ms, _ in waiting if due_ms > now_ms]
        self._next_due_ms = now_ms if ready else min(later, default=now_ms + self._settings.resend_ms)
        return ready

    def asks(self, lane: Lane, now_ms: int) -> bool:
        """Whether the packet published next shall ask for an acknowledgement: by count, by time, or urgent."""
        return (
            lane == Lane.PRIORITY
            or self._since_ack_request + 1 >= self._settings.ack_packets
            or now_ms - self._ack_request_ms >= self._settings.ack_ms
        )

    def sent(self, identity: int, lane: int, now_ms: int) -> None:
        """Count a publish, the first one or a repeat."""
        if self.asks(Lane(lane), now_ms):
            self._since_ack_request, self._ack_request_ms = 0, now_ms
        else:
            self._since_ack_request += 1
        entry = self._outstanding.get(identity)
        if entry is None:
            entry = self._outstanding[identity] = Outstanding(lane, 0, 0, False)
            self._backlog += lane == Lane.BACKLOG
            self._tokens -= lane == Lane.BACKLOG
        entry.attempts += 1
        self._in_flight += not entry.in_flight
        entry.in_flight = True
        wait_ms = self._settings.resend_ms << min(entry.attempts - 1, MAX_DOUBLINGS)
        entry.due_ms = now_ms + min(wait_ms, self._settings.resend_max_ms)
        self._next_due_ms = min(self._next_due_ms, entry.due_ms)

    def pubacked(self, identity: int) -> None:
        """The broker has it; that frees the flight, never the packet."""
        entry = self._outstanding.get(identity)
        if entry is not None and entry.in_flight:
            entry.in_flight = False
            self._in_flight -= 1
            self._next_due_ms = min(self._next_due_ms, entry.due_ms)

    def free(self, first_id: int, last_id: int) -> None:
        """An acknowledgement or a rejection covers these identities, both ends included."""
        if last_id - first_id < len(self._outstanding):
            covered: Iterable[int] = [key for key in range(first_id, last_id + 1) if key in self._outstanding]
        else:
            covered = [key for key in self._outstanding if first_id <= key <= last_id]
        for key in covered:
            self.forget(key)

    def forget(self, identity: int) -> None:
        """It is no longer ours to send: acknowledged, rejected or dropped."""
        entry = self._outstanding.pop(identity, None)
        if entry is not None:
            self._in_flight -= entry.in_flight
            self._backlog -= entry.lane == Lane.BACKLOG

    def wait_ms(self, now_ms: int) -> int:
        """Until the next resend may be due."""
        return max(0, self._next_due_ms - now_ms) if self._outstanding else self._settings.resend_ms

    def _refill(self, now_ms: int) -> None:
        rate = self._settings.backlog_packets_per_s
        self._tokens = min(float(rate), self._tokens + (now_ms - self._tokens_ms) * rate / 1_000)
        self._tokens_ms = now_ms
