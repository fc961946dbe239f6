"""One MQTT 5 connection driven from the gateway's own loop (paho's external loop).

The session outlives the connection: fixed client id, clean start off, hours of expiry, so what was sent to this
worker and not PUBACKed comes again after a reconnect. ``connection`` counts connects; a PUBACK of an older one
is never sent.
"""

from __future__ import annotations

import logging
import random
import select
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.counts import Counts
from gateway.wire import PUBLISH, QOS_2, Packet, ProtocolError, next_packet, read_publish

log = logging.getLogger(__name__)
RECEIVE_BYTES = 64 * 1024
READ_BURST = 256
"""Packets taken before Kafka and timers get their turn."""

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.2, 15.0
MAX_DOWN_IN_FLIGHT = 500
"""Acknowledgements and commands that the broker has not PUBACKed; beyond it the caller waits."""

CLOSE_WAIT_S = 1.0
PUBACK = b"\x40\x02"
OnPublish = Callable[[str, bytes, int, bool, bool], None]
"""(topic, payload, packet id or 0, retained, asks for an acknowledgement)"""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Where, as whom, and how much at a time."""

    host: str
    port: int
    client_id: str
    ca_file: Path
    certificate_file: Path
    key_file: Path
    subscription: str
    keepalive_s: int
    connect_timeout_s: float
    session_expiry_s: int
    receive_maximum: int


class _Client(mqtt.Client):
    """paho with its own way of reading replaced: whole buffers instead of single bytes, and publishes read by us.

    What is replaced and used here is paho's inside; its version is pinned.
    """

    def __init__(self, client_id: str, on_publish: OnPublish) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5, manual_ack=True)
        self._take = on_publish
        self._received = b""

    def forget_buffer(self) -> None:
        """Before a new connection."""
        self._received = b""

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Handle all that has come, reading the socket until it is empty or ``max_packets`` are passed."""
        try:
            handled = self._handle(self._received)
            while handled < max_packets:
                data = self._sock_recv(RECEIVE_BYTES)
                if not data:
                    return self._loop_rc_handle(mqtt.MQTT_ERR_CONN_LOST)
                self._last_bytes_received = time.monotonic()
                handled += self._handle(self._received + data if self._received else data)
        except BlockingIOError:
            return mqtt.MQTT_ERR_SUCCESS
        except OSError as error:
            log.warning("event=mqtt_receive_failed error=%s", error)
            return self._loop_rc_handle(mqtt.MQTT_ERR_CONN_LOST)
        except ProtocolError as error:
            log.error("event=mqtt_protocol_error error=%s", error)
            return self._loop_rc_handle(mqtt.MQTT_ERR_PROTOCOL)
        return mqtt.MQTT_ERR_SUCCESS

    def _handle(self, data: bytes) -> int:
        """All complete packets; the rest waits for more."""
        at, handled = 0, 0
        while (packet := next_packet(data, at)) is not None:
            at = packet.end
            handled += 1
            if packet.first & 0xF0 == PUBLISH and not packet.first & QOS_2:
                self._take(*read_publish(data, packet))
            else:
                self._leave_to_paho(data, packet)
        self._received = data[at:]
        return handled

    def _leave_to_paho(self, data: bytes, packet: Packet) -> None:
        size = packet.end - packet.start
        self._in_packet = {
            "command": packet.first, "have_remaining": 1, "remaining_count": [], "remaining_mult": 1,
            "remaining_length": size, "packet": bytearray(data[packet.start : packet.end]), "to_process": 0, "pos": 0,
        }  # fmt: skip
        if self._packet_handle() > 0:
            raise ProtocolError("paho could not handle a packet")


class Link:
    """Not thread-safe: everything happens inside ``step`` of one thread."""

    def __init__(self, settings: LinkSettings, counts: Counts, on_publish: OnPublish) -> None:
        self._settings = settings
        self._counts = counts
        self._on_publish = on_publish
        self._client = self._make_client()
        self._unsent = b""
        self._midway = False
        self._down: set[int] = set()
        self._confirmed: set[int] = set()
        self._failures = 0
        self._retry_at_s = 0.0
        self._random = random.Random()
        self.connection = 0
        self.connected = False
        self.subscribed = False
        self.refusal = ""

    def step(self, now_s: float, wait_s: float, room: int) -> None:
        """Connect when it is time, read up to ``room`` packets, write what waits; wait ``wait_s`` for either."""
        sock = self._client.socket()
        if sock is None:
            self.connected = self.subscribed = False
            self._connect_when_due(now_s, wait_s)
            return
        reading = room > 0
        if reading and isinstance(sock, ssl.SSLSocket) and sock.pending():
            wait_s = 0.0
        wants_write = bool(self._unsent) or self._client.want_write()
        readable, writable, _ = select.select([sock] if reading else [], [sock] if wants_write else [], [], wait_s)
        if reading and (readable or wait_s == 0.0):
            self._client.loop_read(min(room, READ_BURST))
        if writable or self._client.want_write():
            self._flush()
        self._client.loop_misc()

    def puback(self, packet_ids: list[int]) -> None:
        """Send these in order, in one write; the caller has checked that they belong to this connection."""
        self._unsent += b"".join([PUBACK + packet_id.to_bytes(2, "big") for packet_id in packet_ids])
        self._counts.pubacked += len(packet_ids)
        self._flush()

    @property
    def can_publish(self) -> bool:
        return self.connected and len(self._down) < MAX_DOWN_IN_FLIGHT

    @property
    def publishing(self) -> int:
        """Publishes that the broker has not taken yet."""
        return len(self._down)

    def publish(self, topic: str, payload: bytes, expiry_s: int | None = None) -> int:
        """Send at QoS 1; the returned number appears in ``take_confirmed`` once the broker has it."""
        properties = None
        if expiry_s is not None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.MessageExpiryInterval = expiry_s
        packet_id = self._client.publish(topic, payload, qos=1, properties=properties).mid
        self._down.add(packet_id)
        return packet_id

    def take_confirmed(self) -> set[int]:
        confirmed, self._confirmed = self._confirmed, set()
        return confirmed

    def close(self) -> None:
        """Leave politely; the session stays."""
        if self._client.socket() is None:
            return
        self._client.disconnect()
        while self._client.socket() is not None and (self._unsent or self._client.want_write()):
            if not _writable(self._client.socket()):
                return
            self._flush()

    def _make_client(self) -> _Client:
        settings = self._settings
        client = _Client(settings.client_id, self._on_publish)
        client.tls_set(str(settings.ca_file), str(settings.certificate_file), str(settings.key_file),
                       tls_version=ssl.PROTOCOL_TLS_CLIENT)  # fmt: skip
        client.connect_timeout = settings.connect_timeout_s
        client.max_inflight_messages = MAX_DOWN_IN_FLIGHT
        client.on_socket_register_write = _later
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_subscribe = self._subscribed
        client.on_publish = self._published
        return client

    def _connect_when_due(self, now_s: float, wait_s: float) -> None:
        if now_s < self._retry_at_s:
            select.select([], [], [], min(wait_s, self._retry_at_s - now_s))
            return
        # full jitter: workers that lost the same broker do not come back together
        ceiling_s = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** min(self._failures, 10))
        self._failures += 1
        self._retry_at_s = now_s + self._random.uniform(BACKOFF_MIN_S / 2, ceiling_s)
        settings = self._settings
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = settings.session_expiry_s
        properties.ReceiveMaximum = settings.receive_maximum
        self._client.forget_buffer()
        self._unsent, self._midway = b"", False
        try:
            self._client.connect(
                settings.host, settings.port, settings.keepalive_s, clean_start=False, properties=properties
            )
        except OSError as error:
            log.warning("event=mqtt_connect_failed error=%s attempt=%d", error, self._failures)

    def _flush(self) -> None:
        """Write paho's packets and our PUBACKs, never one inside another.

        TLS wants a write that was cut short to be repeated with the same bytes first, so whoever was cut short goes on.
        """
        sock: Any = self._client.socket()
        if sock is None:
            return
        if not self._midway and self._client.want_write():
            self._client.loop_write()
            if self._client.want_write():
                return
        if self._unsent:
            self._midway = True
            try:
                self._unsent = self._unsent[sock.send(self._unsent) :]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
                return
            except OSError:
                return  # the next read reports the lost connection
            self._midway = bool(self._unsent)

    def _connected(self, client: mqtt.Client, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            log.error("event=mqtt_refused reason=%s", reason)
            self.refusal = f"the broker refused this worker ({reason}); check its certificate and ACL"
            return
        self.connection += 1
        self.connected, self.refusal, self._failures = True, "", 0
        self._counts.connects += 1
        log.info("event=mqtt_connected session_present=%s connection=%d", flags.session_present, self.connection)
        options = SubscribeOptions(qos=1, retainAsPublished=True)
        client.subscribe([(self._settings.subscription, options)])

    def _subscribed(self, client: mqtt.Client, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            log.error("event=mqtt_subscribe_refused")
            self.refusal = "the broker refused the shared subscription; check its ACL"
            client.disconnect()
            return
        self.subscribed = True

    def _disconnected(self, _client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self.connected = self.subscribed = False
        log.warning("event=mqtt_disconnected reason=%s", reason)

    def _published(self, _client: mqtt.Client, _data: Any, mid: int, _reason: Any, _properties: Any) -> None:
        self._down.discard(mid)
        self._confirmed.add(mid)


def _writable(sock: Any) -> bool:
    return bool(select.select([], [sock], [], CLOSE_WAIT_S)[1])


def _later(_client: mqtt.Client, _data: Any, _sock: Any) -> None:
    """Having this callback keeps paho from writing at once: packets gather and ``step`` writes them."""
