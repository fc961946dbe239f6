"""One device of a load run: its identity, its MQTT session, what it sent and what is acknowledged.

It speaks through the contracts alone: real packets, mutual TLS, QoS 1, end-to-end acknowledgements. A packet stays
held until the gateway confirms it; after ``resend_s`` the same bytes go again.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from contracts.acks import Ack, decode_ack
from contracts.errors import Rejected
from contracts.packet import Header, Lane
from contracts.topics import ACK_PROPERTY, DOWN_ACK, UP_LIVE, down_topic, up_topic
from simulators.plan import Broker, PlannedDevice
from simulators.tape import Tape

SESSION_EXPIRY_S = 3_600
KEEPALIVE_S = 60
FIRST_REFUSAL = 0x80
Journal = Callable[[str, int, int, str, int, int], None]
"""Told device, boot epoch, seq, SHA-256, samples, lane of each packet before it is sent."""


@dataclass(slots=True)
class Held:
    """A packet that the cloud has not confirmed; times are monotonic seconds."""

    frame: bytes
    first_sent_s: float
    sent_s: float


@dataclass(slots=True)
class Counts:
    """Of all devices of a run; packets unless the name says otherwise."""

    sent: int = 0
    sent_samples: int = 0
    acked: int = 0
    rejected: int = 0
    resent: int = 0
    turns_held: int = 0
    """Turns that a device let pass because its window was full."""
    refused_publishes: int = 0
    disconnects: int = 0
    latencies: Counter[int] = field(default_factory=Counter)
    """From the first publish to the confirmation, packets by milliseconds."""

    def ack_latency_ms(self, share: float) -> int | None:
        """Least latency that at least ``share`` of the packets did not exceed."""
        left = share * self.latencies.total()
        for latency_ms in sorted(self.latencies):
            left -= self.latencies[latency_ms]
            if left <= 0:
                return latency_ms
        return None


def publish_properties() -> Properties:
    """MQTT 5 properties of a publish that asks for an end-to-end acknowledgement."""
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [ACK_PROPERTY]
    return properties


class LoadDevice:
    """Owned by one thread, which calls ``turn``, ``resend`` and the socket methods of ``client``."""

    def __init__(
        self, planned: PlannedDevice, boot_epoch: int, nonce: int, tape: Tape, first_turn: int, counts: Counts
    ) -> None:
        self.name = planned.device
        self._header = Header(planned.tenant, planned.device, boot_epoch, nonce, 1, Lane.LIVE, 0, 0, True, 0)
        self._tape, self._first_turn, self._counts = tape, first_turn, counts
        self._topic = up_topic(self.name, UP_LIVE)
        self.next_seq = 1
        self.held: dict[int, Held] = {}
        self.opened = self.connected = False
        self._asked_s = 0.0
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=self.name, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.max_inflight_messages_set(1_000)
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish

    def connect(self, broker: Broker, planned: PlannedDevice) -> None:
        """TCP, TLS and CONNECT; the answer comes through the loop. Raises OSError."""
        context = ssl.create_default_context(cafile=broker.ca)
        context.load_cert_chain(planned.certificate, planned.key)
        self.client.tls_set_context(context)
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = SESSION_EXPIRY_S
        self.client.connect(broker.host, broker.port, KEEPALIVE_S, clean_start=False, properties=properties)
        self.opened = True

    def turn(
        self, now_s: float, base_ms: int, window: int, ask: Properties, ask_every_s: float, journal: Journal | None
    ) -> bool:
        """Encode and publish the next packet; False when the window is full or the link is down."""
        if not self.connected or len(self.held) >= window:
            self._counts.turns_held += 1
            return False
        seq, self.next_seq = self.next_seq, self.next_seq + 1
        header = Header(
            self._header.tenant, self.name, self._header.boot_epoch, self._header.nonce, seq, Lane.LIVE, base_ms,
            int(now_s * 1_000), True, 0,
        )  # fmt: skip
        frame = self._tape.packet(header, self._first_turn + seq)
        self.held[seq] = Held(frame, now_s, now_s)
        if journal is not None:
            digest = hashlib.sha256(frame).hexdigest()
            journal(self.name, self._header.boot_epoch, seq, digest, self._tape.samples, Lane.LIVE)
        self._counts.sent += 1
        self._counts.sent_samples += self._tape.samples
        asks = now_s - self._asked_s >= ask_every_s or len(self.held) >= window
        self._asked_s = now_s if asks else self._asked_s
        self.client.publish(self._topic, frame, 1, properties=ask if asks else None)
        return True

    def resend(self, now_s: float, resend_s: float, ask: Properties) -> None:
        """Publish again, byte-identical, what has waited too long; the last one asks."""
        if not self.connected:
            return
        stale = [held for held in self.held.values() if now_s - held.sent_s >= resend_s]
        for held in stale:
            held.sent_s = now_s
            self._counts.resent += 1
            self.client.publish(self._topic, held.frame, 1, properties=ask if held is stale[-1] else None)

    def _on_connect(self, client: Client, _data: Any, _flags: Any, code: ReasonCode, _properties: Any) -> None:
        self.connected = not code.is_failure
        if self.connected:
            client.subscribe(down_topic(self.name, DOWN_ACK), 1)

    def _on_disconnect(self, _client: Client, _data: Any, _flags: Any, _code: ReasonCode, _properties: Any) -> None:
        self.connected = False
        self._counts.disconnects += 1

    def _on_publish(self, _client: Client, _data: Any, _mid: int, code: ReasonCode, _properties: Any) -> None:
        self._counts.refused_publishes += code.value >= FIRST_REFUSAL

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        try:
            self.take_ack(decode_ack(bytes(message.payload)), time.monotonic())
        except Rejected:
            self._counts.rejected += 1

    def take_ack(self, ack: Ack, now_s: float) -> None:
        """Free what the gateway confirmed or refused for good; other epochs are another run's."""
        if (ack.boot_epoch, ack.nonce) != (self._header.boot_epoch, self._header.nonce):
            return
        for ranges, is_confirmed in ((ack.confirmed, True), (ack.rejected, False)):
            freed = [seq for seq in self.held if any(first <= seq <= last for first, last in ranges)]
            for seq in freed:
                held = self.held.pop(seq)
                self._counts.acked += is_confirmed
                self._counts.rejected += not is_confirmed
                self._counts.latencies[int((now_s - held.first_sent_s) * 1_000)] += 1

    def tick(self) -> MQTTErrorCode:
        """Keepalive; the caller reconnects when this is not a success."""
        return self.client.loop_misc()
