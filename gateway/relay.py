"""The loop: a publish comes in, is judged, goes to Kafka, is PUBACKed in order and confirmed to its device.

One thread does everything, so nothing here is locked. ``step`` is one round; ``run`` repeats it. What may fail
outside is waited for: while Kafka is away nothing is PUBACKed and, once the window is full, nothing is read.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from contracts.acks import encode_ack
from contracts.identity import IdentityNotice, encode_notice
from contracts.topics import DOWN_ACK, DOWN_IDENTITY, down_topic
from gateway.acker import Acker
from gateway.admission import Accepted, Admission, Inbound, Refused, Verdict
from gateway.commands import CommandFeed
from gateway.counts import Counts
from gateway.limiter import Limiter
from gateway.registry import RegistryFeed
from gateway.window import AckWindow, Entry

log = logging.getLogger(__name__)
BUSY_WAIT_S = 0.001
"""How long a round waits for the socket while Kafka owes answers: they do not wake the socket's wait."""

IDLE_WAIT_S = 0.05
HOUSEKEEPING_S = 0.1
"""How often registry and commands are looked at."""

ACKS_PER_ROUND = 100
NOTICE_EVERY_S = 2.0
MAX_NOTICES = 1_000
"""Devices told of a conflict and not to be told again at once; beyond it the oldest is told again sooner."""

Clock = Callable[[], float]


class MqttLink(Protocol):
    """What the loop needs of the MQTT connection (``gateway.link.Link``)."""

    connection: int
    connected: bool
    subscribed: bool
    refusal: str

    @property
    def can_publish(self) -> bool: ...
    @property
    def publishing(self) -> int: ...
    def step(self, now_s: float, wait_s: float, room: int) -> None: ...
    def puback(self, packet_ids: list[int]) -> None: ...
    def publish(self, topic: str, payload: bytes, expiry_s: int | None = None) -> int: ...
    def take_confirmed(self) -> set[int]: ...
    def close(self) -> None: ...


class KafkaOutlet(Protocol):
    """What the loop needs of the producer (``gateway.outlet.Outlet``)."""

    def send(self, entry: Entry) -> None: ...
    def poll(self, now_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Clocks:
    """``monotonic_s`` for ages and timers, ``wall_s`` for receive times (Unix epoch seconds)."""

    monotonic_s: Clock
    wall_s: Clock


class Relay:
    """One worker of the gateway. ``receive`` is what the link calls for every publish."""

    def __init__(
        self,
        admission: Admission,
        limiter: Limiter,
        window: AckWindow,
        acker: Acker,
        counts: Counts,
        clocks: Clocks,
    ) -> None:
        self._admission = admission
        self._limiter = limiter
        self._window = window
        self._acker = acker
        self._counts = counts
        self._clocks = clocks
        self._stopping = False
        self._housekept_s = float("-inf")
        self._noticed: OrderedDict[str, float] = OrderedDict()
        self.beat_s = clocks.monotonic_s()

    def attach(self, link: MqttLink, outlet: KafkaOutlet, facts: Sequence[RegistryFeed], commands: CommandFeed) -> None:
        """Give it its outside; once, before the first step. ``facts``: the topics that judging needs."""
        self._link = link
        self._outlet = outlet
        self._facts = facts
        self._commands = commands

    def request_stop(self) -> None:
        """May be called from a signal handler."""
        self._stopping = True

    def run(self, drain_timeout_s: float) -> None:
        """Work until ``request_stop``, then finish what was begun."""
        while not self._stopping and (unread := [feed for feed in self._facts if not feed.complete]):
            self.beat_s = self._clocks.monotonic_s()
            for feed in unread:
                feed.step(IDLE_WAIT_S)
        while not self._stopping:
            self.step()
        self._drain(drain_timeout_s)

    def step(self) -> None:
        """One round."""
        now_s = self.beat_s = self._clocks.monotonic_s()
        wait_s = BUSY_WAIT_S if len(self._window) else IDLE_WAIT_S
        self._link.step(now_s, wait_s, self._window.room)
        self._outlet.poll(now_s)
        self._release(now_s)
        self._send_acks(now_s)
        if now_s - self._housekept_s >= HOUSEKEEPING_S:
            self._housekept_s = now_s
            for feed in self._facts:
                feed.step()
            self._commands.step(int(self._clocks.wall_s() * 1000), self._link.take_confirmed())

    def receive(self, topic: str, payload: bytes, packet_id: int, retained: bool, asked: bool) -> None:
        """Judge one publish and send it on its way. While stopping nothing is taken: the broker keeps it."""
        if self._stopping:
            return
        counts, now_s = self._counts, self._clocks.monotonic_s()
        counts.received += 1
        counts.received_bytes += len(payload)
        if not self._limiter.allow(self._admission.bucket(topic), now_s):
            counts.shed += 1
            self._window.add(Entry(packet_id, self._link.connection, None, now_s))
            return
        verdict = self._judge(Inbound(topic, payload, retained, int(self._clocks.wall_s() * 1000)))
        rejected = not isinstance(verdict, Accepted)
        entry = Entry(
            packet_id, self._link.connection, verdict.record, now_s, verdict.device, verdict.identity,
            asked=asked, urgent=isinstance(verdict, Accepted) and verdict.urgent, rejected=rejected,
        )  # fmt: skip
        self._window.add(entry)
        self._outlet.send(entry)
        if isinstance(verdict, Refused) and verdict.notice is not None:
            self._tell_identity(verdict.device, verdict.notice, now_s)

    def _tell_identity(self, device: str, notice: IdentityNotice, now_s: float) -> None:
        """Now and then while a device goes on under an epoch that is not its own; forgetting costs a repeat."""
        if now_s - self._noticed.get(device, float("-inf")) < NOTICE_EVERY_S or not self._link.can_publish:
            return
        self._noticed[device] = now_s
        self._noticed.move_to_end(device)
        if len(self._noticed) > MAX_NOTICES:
            self._noticed.popitem(last=False)
        self._link.publish(down_topic(device, DOWN_IDENTITY), encode_notice(notice))
        log.warning("event=identity_conflict device=%s boot_epoch=%d", device, notice.boot_epoch)

    def _judge(self, message: Inbound) -> Verdict:
        try:
            verdict = self._admission.admit(message)
        except Exception:
            log.exception("event=admission_failed bytes=%d", len(message.payload))
            verdict = self._admission.broken(message)
        if isinstance(verdict, Accepted):
            self._counts.accepted[verdict.record.topic] += 1
        else:
            self._counts.refused[verdict.reason] += 1
        return verdict

    def _release(self, now_s: float) -> None:
        released = self._window.release()
        if not released:
            return
        packet_ids, stale = [], 0
        connection = self._link.connection if self._link.connected else -1
        for entry in released:
            if entry.mid and entry.connection == connection:
                packet_ids.append(entry.mid)
            elif entry.mid:
                stale += 1
            self._counts.latency.observe(now_s - entry.received_s)
            if entry.identity is not None:
                at_once = entry.asked or entry.urgent or entry.rejected
                self._acker.note(entry.device, entry.identity, now_s, rejected=entry.rejected, at_once=at_once)
        self._counts.stale_pubacks += stale
        if packet_ids:
            self._link.puback(packet_ids)

    def _send_acks(self, now_s: float, *, everything: bool = False) -> None:
        if not self._link.can_publish:
            return
        for due in self._acker.take(now_s, ACKS_PER_ROUND, everything=everything):
            self._link.publish(down_topic(due.device, DOWN_ACK), encode_ack(due.ack))
            self._counts.acks_sent += 1

    def _drain(self, timeout_s: float) -> None:
        """Take nothing new; wait for Kafka and for the broker to have our answers; leave the session standing."""
        deadline_s = self._clocks.monotonic_s() + timeout_s
        while (now_s := self._clocks.monotonic_s()) < deadline_s and self._unfinished():
            self.beat_s = now_s
            self._link.step(now_s, BUSY_WAIT_S, 1_000)
            self._outlet.poll(now_s)
            self._release(now_s)
            self._send_acks(now_s, everything=True)
        left = len(self._window)
        log.info("event=stopped left_to_the_broker=%d", left)
        self._commands.step(int(self._clocks.wall_s() * 1000), self._link.take_confirmed())
        self._commands.close()
        for feed in self._facts:
            feed.close()
        self._link.close()

    def _unfinished(self) -> bool:
        answers_owed = self._link.connected and (len(self._acker) > 0 or self._link.publishing > 0)
        return len(self._window) > 0 or answers_owed
