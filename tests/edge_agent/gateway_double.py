"""A gateway in fifty lines: takes every packet over real MQTT and acknowledges it by range, as the contract says."""

from __future__ import annotations

import ssl
import threading
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from contracts.acks import Ack, encode_ack
from contracts.packet import decode_packet
from contracts.status import AgentStatus, decode_status
from contracts.topics import down_topic, parse_up_topic
from infra.ca import Credentials


class GatewayDouble:
    """Remembers the first bytes of every identity; a repeat must be the same bytes."""

    def __init__(self, host: str, port: int, credentials: Credentials, lasting: bool = False) -> None:
        """``lasting``: the broker keeps for it what comes while it is away, as for the real one."""
        self.frames: dict[tuple[str, int, int], bytes] = {}
        self.copies = 0
        self.differing = 0
        self.channels: dict[str, int] = {}
        self.statuses: list[AgentStatus] = []
        self.acks = True
        self.changed = threading.Condition()
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id=credentials.certificate.stem, protocol=MQTTProtocolVersion.MQTTv5
        )
        context = ssl.create_default_context(cafile=credentials.ca)
        context.load_cert_chain(credentials.certificate, credentials.key)
        self._client.tls_set_context(context)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_connect = lambda client, *_: client.subscribe("v1/+/up/#", 1)
        self._client.on_message = self._take
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 3_600 if lasting else 0
        self.subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: self.subscribed.set()
        self._client.connect(host, port, clean_start=not lasting, properties=properties)
        self._client.loop_start()

    def _take(self, client: Client, _data: Any, message: MQTTMessage) -> None:
        if message.retain:  # what another test left at the broker
            return
        payload = bytes(message.payload)
        device, channel = parse_up_topic(message.topic)
        with self.changed:
            if channel == "status":
                self.statuses.append(decode_status(payload))
            elif channel != "answer":
                self._take_packet(client, device, channel, payload)
            self.changed.notify_all()

    def _take_packet(self, client: Client, device: str, channel: str, frame: bytes) -> None:
        header = decode_packet(frame).header
        self.copies += 1
        self.differing += self.frames.setdefault((device, header.boot_epoch, header.seq), frame) != frame
        self.channels[channel] = self.channels.get(channel, 0) + 1
        if self.acks:
            ack = Ack(header.boot_epoch, header.nonce, ((header.seq, header.seq),))
            client.publish(down_topic(device, "ack"), encode_ack(ack), 1)

    def wait_for(self, packets: int, timeout_s: float) -> bool:
        """Whether at least ``packets`` different packets came within the time."""
        with self.changed:
            return self.changed.wait_for(lambda: len(self.frames) >= packets, timeout_s)

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
