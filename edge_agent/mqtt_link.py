"""paho-mqtt behind ``link.Link``: one thread that connects, serves the socket and reconnects with full jitter.

Each connection gets a fresh paho client: paho would otherwise resend what it remembers with packet ids of the old
connection, while the send window already decides what goes again. The thread only turns callbacks into events.
"""

from __future__ import annotations

import logging
import random
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from contracts.topics import ACK_PROPERTY, DOWN_CHANNELS, down_topic, up_topic
from edge_agent.errors import SettingsError
from edge_agent.link import Connected, Disconnected, Event, PubAck, Received, full_jitter_ms
from edge_agent.settings import MqttSettings

log = logging.getLogger("edge_agent.link")
MAX_EVENTS = 20_000
"""Collected many times a second; beyond this the oldest are lost, which costs resends and nothing else."""
DEFAULT_RECEIVE_MAXIMUM = 65_535
PAHO_IN_FLIGHT = 65_535
"""paho's own window is opened wide: ours is the one that counts."""
FIRST_REFUSAL = 0x80


class MqttLink:
    """One device's connection. ``wake`` is called from the link's thread after each event."""

    def __init__(self, device: str, settings: MqttSettings, wake: Callable[[], None]) -> None:
        self._device = device
        self._settings = settings
        self._wake = wake
        self._tls = _tls_context(settings)
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._stopping = threading.Event()
        self._client: Client | None = None
        self._generation = 0
        self._attempt = 0
        self._thread = threading.Thread(target=self._serve, name=f"link-{device}", daemon=True)
        self._ask = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        self._ask.UserProperty = [ACK_PROPERTY]

    def start(self) -> None:
        self._thread.start()

    def publish(self, channel: str, payload: bytes, ask_ack: bool) -> tuple[int, int] | None:
        client, generation = self._client, self._generation
        if client is None:
            return None
        info = client.publish(up_topic(self._device, channel), payload, 1, properties=self._ask if ask_ack else None)
        return (generation, info.mid) if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS else None

    def events(self) -> list[Event]:
        return [self._events.popleft() for _ in range(len(self._events))]

    def stop(self) -> None:
        self._stopping.set()
        client = self._client
        if client is not None:
            client.disconnect()
        if self._thread.is_alive():
            self._thread.join(self._settings.connect_timeout_s + 2)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._generation += 1
            client = self._new_client(self._generation)
            try:
                self._run(client)
                reason = "closed"
            except (OSError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
            self._client = None
            self._tell(Disconnected(self._generation, reason))
            if self._stopping.is_set():
                return
            self._attempt += 1
            wait_ms = full_jitter_ms(
                self._attempt, self._settings.backoff_min_ms, self._settings.backoff_max_ms, random.random
            )
            log.info("event=link_down device=%s reason=%r retry_ms=%d", self._device, reason, wait_ms)
            self._stopping.wait(wait_ms / 1_000)

    def _run(self, client: Client) -> None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._settings.session_expiry_s
        host, port = self._settings.host, self._settings.port
        client.connect(host, port, self._settings.keepalive_s, clean_start=False, properties=properties)
        while client.loop(1.0) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            if self._stopping.is_set():
                client.disconnect()

    def _new_client(self, generation: int) -> Client:
        client = Client(
            CallbackAPIVersion.VERSION2, client_id=self._device, protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
        )  # fmt: skip
        client.connect_timeout = self._settings.connect_timeout_s
        client.max_inflight_messages_set(PAHO_IN_FLIGHT)
        client.max_queued_messages_set(0)
        if self._tls is not None:
            client.tls_set_context(self._tls)
        # With this callback set, publish() leaves writing to the link's thread, so two threads never write at once.
        client.on_socket_register_write = _leave_writing_to_the_loop

        def on_connect(
            client: Client, _data: Any, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
        ) -> None:
            self._on_connect(client, generation, flags, code, properties)

        def on_publish(_client: Client, _data: Any, mid: int, code: ReasonCode, _properties: Properties) -> None:
            self._tell(PubAck(generation, mid, code.value if code.value >= FIRST_REFUSAL else 0))

        def on_message(_client: Client, _data: Any, message: MQTTMessage) -> None:
            self._tell(Received(generation, message.topic.rpartition("/")[2], bytes(message.payload)))

        client.on_connect, client.on_publish, client.on_message = on_connect, on_publish, on_message
        client.on_disconnect = self._on_disconnect
        return client

    def _on_connect(
        self, client: Client, generation: int, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        if code.is_failure:
            log.warning("event=connect_refused device=%s reason=%r", self._device, str(code))
            client.disconnect()
            return
        self._attempt = 0
        client.subscribe([(down_topic(self._device, channel), 1) for channel in DOWN_CHANNELS])
        limit = getattr(properties, "ReceiveMaximum", DEFAULT_RECEIVE_MAXIMUM)
        log.info("event=link_up device=%s session_present=%s", self._device, flags.session_present)
        self._tell(Connected(generation, flags.session_present, limit))
        self._client = client

    def _on_disconnect(
        self, _client: Client, _data: Any, _flags: DisconnectFlags, code: ReasonCode, _properties: Properties | None
    ) -> None:
        self._client = None
        if code.is_failure:
            log.info("event=link_lost device=%s reason=%r", self._device, str(code))

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._wake()


def _leave_writing_to_the_loop(_client: Client, _data: Any, _socket: Any) -> None:
    """Nothing to do: paho has already woken the loop through its socket pair."""


def _tls_context(settings: MqttSettings) -> ssl.SSLContext | None:
    """Mutual TLS with the device's certificate. Raises SettingsError when a file is missing or does not fit."""
    if settings.ca is None:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.cert is not None:
            context.load_cert_chain(settings.cert, settings.key)
        return context
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"mqtt.ca, mqtt.cert or mqtt.key cannot be used: {error}; enrol the device again"
        ) from error
