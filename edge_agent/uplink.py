"""Sends what the spool holds, living data first, and frees what the gateway confirms.

The spool decides what exists, the window what may go, the link how. Used by the agent's thread only; the link's
own thread reaches this side as events.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from contracts.acks import decode_ack
from contracts.errors import Rejected
from contracts.packet import Lane
from contracts.topics import DOWN_ACK, DOWN_COMMAND, DOWN_IDENTITY, LANE_CHANNELS, UP_STATUS
from edge_agent.link import Connected, Disconnected, Event, Link, PubAck, Received
from edge_agent.settings import UplinkSettings
from edge_agent.spool import Spool
from edge_agent.spool_index import id_bounds
from edge_agent.spool_model import Stored
from edge_agent.window import SendWindow

log = logging.getLogger("edge_agent.uplink")
MAX_PER_LANE = 50
"""Packets read from the spool per lane and turn, so that a long backlog never holds up the acquisition."""
STATUS_IN_FLIGHT = 2
"""Places of the broker's receive maximum left to heartbeats."""
SEND_ORDER = (Lane.PRIORITY, Lane.LIVE, Lane.BACKLOG)


class Uplink:
    """One device's way up; ``attach`` gives it the spool (again, when a damaged one was replaced)."""

    def __init__(self, link: Link, settings: UplinkSettings) -> None:
        self._link = link
        self._settings = settings
        self._generation = 0
        self._publishes: dict[int, int] = {}
        self.is_connected = False
        self.refused_publishes = 0
        self.strange_messages = 0
        self.commands: list[bytes] = []
        self.notices: list[bytes] = []
        self._receive_maximum = 1
        self._unread = dict.fromkeys(SEND_ORDER, False)
        self._below_cursor: list[int] = []
        self._ahead: list[int] = []
        self._live_unsent = 0

    def attach(self, spool: Spool) -> None:
        """Begin with everything that ``spool`` holds."""
        self._spool = spool
        self.window = SendWindow(self._settings)
        self._cursor = dict.fromkeys(SEND_ORDER, 0)
        self._unread = dict.fromkeys(SEND_ORDER, True)
        self._below_cursor, self._ahead = [], []
        self._live_unsent = spool.index.lane_packets(Lane.LIVE)
        self._publishes.clear()
        if self.is_connected:
            self.window.connected(self._receive_maximum, session_present=True, now_ms=0)

    @property
    def lane(self) -> Lane:
        """What a packet accepted now travels on: live only if it would really leave soon."""
        return Lane.LIVE if self.is_connected and self._live_unsent < self._settings.live_unsent else Lane.BACKLOG

    def accepted(self, packets: Iterable[Stored], ahead: bool = False) -> None:
        """New packets are in the spool; ``ahead``: they leave before everything else, repeats included."""
        for stored in packets:
            if ahead:
                self._ahead.append(stored.identity)
            lane = Lane(stored.lane)
            self._unread[lane] = True
            self._live_unsent += lane == Lane.LIVE
            if stored.identity < self._cursor[lane]:
                self._below_cursor.append(stored.identity)

    def collect(self, mono_ms: int) -> None:
        """Take in what the link reports; commands wait in ``commands``."""
        for event in self._link.events():
            self._on_event(event, mono_ms)

    def send(self, mono_ms: int) -> None:
        """Publish what may go now: resends, then priority, live, backlog."""
        if not self.is_connected:
            return
        below = self._below_cursor[: self.window.room(Lane.LIVE, mono_ms)]
        again = [*self._ahead, *self.window.due(mono_ms), *below]
        for identity in again:
            stored = self._spool.get(identity)
            if stored is None:
                self.window.forget(identity)
            elif not self._publish(stored, mono_ms):
                return
        sent = set(again)
        self._below_cursor = [identity for identity in self._below_cursor if identity not in sent]
        self._ahead = []
        for lane in SEND_ORDER:
            self._send_lane(lane, mono_ms)

    def send_status(self, payload: bytes) -> bool:
        """Publish a heartbeat; False while there is no connection (a heartbeat is not kept)."""
        return self.send_message(UP_STATUS, payload)

    def send_message(self, channel: str, payload: bytes) -> bool:
        """Publish JSON on a channel of ``UP_MESSAGES``; False while there is no connection."""
        return self.is_connected and self._link.publish(channel, payload, ask_ack=False) is not None

    def disown(self, boot_epoch: int) -> None:
        """What is on its way under this epoch is not ours to repeat: it moves to another identity."""
        self.window.free(*id_bounds(boot_epoch, (0, 1 << 63)))
        low, high = id_bounds(boot_epoch, (0, 1 << 63))
        self._ahead = [identity for identity in self._ahead if not low <= identity <= high]
        self._below_cursor = [identity for identity in self._below_cursor if not low <= identity <= high]

    @property
    def may_send_more(self) -> bool:
        """Whether another turn could publish at once."""
        waiting = any(self._unread.values()) or bool(self._below_cursor)
        return self.is_connected and waiting and self.window.in_flight == 0

    def _send_lane(self, lane: Lane, mono_ms: int) -> None:
        limit = min(MAX_PER_LANE, self.window.room(lane, mono_ms)) if self._unread[lane] else 0
        if limit == 0:
            return
        packets = self._spool.next(lane, self._cursor[lane], limit)
        for stored in packets:
            if self._spool.discard_damaged(stored):
                log.error("event=frame_damaged boot_epoch_seq=%d", stored.identity)
            elif stored.identity not in self.window and not self._publish(stored, mono_ms):
                return
            self._cursor[lane] = stored.identity
            self._live_unsent -= lane == Lane.LIVE
        self._unread[lane] = len(packets) == limit
        if lane == Lane.LIVE and not self._unread[lane]:
            self._live_unsent = 0

    def _publish(self, stored: Stored, mono_ms: int) -> bool:
        """False when the connection went away meanwhile."""
        ask_ack = self.window.asks(Lane(stored.lane), mono_ms)
        message = self._link.publish(LANE_CHANNELS[Lane(stored.lane)], stored.frame, ask_ack)
        if message is None or message[0] != self._generation:
            return False
        self._publishes[message[1]] = stored.identity
        self.window.sent(stored.identity, stored.lane, mono_ms)
        return True

    def _on_event(self, event: Event, mono_ms: int) -> None:
        match event:
            case Connected(generation, session_present, receive_maximum):
                self._generation, self.is_connected = generation, True
                self._publishes.clear()
                self._receive_maximum = max(1, receive_maximum - STATUS_IN_FLIGHT)
                self.window.connected(self._receive_maximum, session_present, mono_ms)
            case Disconnected():
                self.is_connected = False
            case PubAck(generation, message_id, refused) if generation == self._generation:
                self._on_puback(message_id, refused)
            case Received(_, channel, payload):
                self._on_message(channel, payload)

    def _on_puback(self, message_id: int, refused: int) -> None:
        self.refused_publishes += refused > 0
        identity = self._publishes.pop(message_id, None)
        if identity is not None:
            self.window.pubacked(identity)

    def _on_message(self, channel: str, payload: bytes) -> None:
        if channel == DOWN_COMMAND:
            self.commands.append(payload)
        elif channel == DOWN_ACK:
            self._on_ack(payload)
        elif channel == DOWN_IDENTITY:
            self.notices.append(payload)

    def _on_ack(self, payload: bytes) -> None:
        try:
            ack = decode_ack(payload)
        except Rejected:
            self.strange_messages += 1
            return
        if not self._spool.acknowledge(ack):
            return
        for numbers in (*ack.confirmed, *ack.rejected):
            self.window.free(*id_bounds(ack.boot_epoch, numbers))
