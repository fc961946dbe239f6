"""A stand-in for the gateway that acknowledges end to end over the real broker: for tests of what sends."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections import defaultdict
from types import TracebackType
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from contracts.acks import Ack, encode_ack
from contracts.packet import decode_header
from contracts.ranges import ranges_of
from contracts.topics import ACK_PROPERTY, DOWN_ACK, down_topic
from simulators.plan import FleetPlan
from tests.fix_stack import MqttBroker

WORKER = "gateway-7"


class AnsweringGateway:
    """Reads every packet, remembers its hash, answers when asked, or always.

    Each ``withhold_every``-th packet counts only when it comes again. The broker serves the whole test run and may
    still hand out what another test's devices sent, so only the plan's own devices are heard.
    """

    def __init__(self, broker: MqttBroker, plan: FleetPlan, withhold_every: int = 0, unasked: bool = False) -> None:
        self._devices = {planned.device for planned in plan.devices}
        self.hashes: dict[tuple[str, int], str] = {}
        self.frames: set[str] = set()
        self.repeats = 0
        self._withhold_every, self._unasked = withhold_every, unasked
        self._listening = threading.Event()
        self._seen: set[tuple[str, int, int]] = set()
        self._pending: defaultdict[tuple[str, int, int], set[int]] = defaultdict(set)
        files = broker.issue(WORKER)
        context = ssl.create_default_context(cafile=files.ca)
        context.load_cert_chain(files.certificate, files.key)
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=WORKER, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.tls_set_context(context)
        self._client.max_inflight_messages_set(1_000)
        self._client.on_connect = lambda client, *_rest: client.subscribe("v1/+/up/#", 1)
        self._client.on_subscribe = lambda *_rest: self._listening.set()
        self._client.on_message = self._on_message
        self._address = broker.host, broker.port

    def __enter__(self) -> AnsweringGateway:
        self._client.connect(*self._address, clean_start=True)
        self._client.loop_start()
        assert self._listening.wait(120), "the broker did not confirm the subscription"
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _on_message(self, client: Client, _data: Any, message: MQTTMessage) -> None:
        if message.topic.endswith(("/status", "/answer")) or message.topic.split("/")[1] not in self._devices:
            return
        frame = bytes(message.payload)
        header = decode_header(frame)
        identity = (header.device, header.seq)
        whole = (header.device, header.boot_epoch, header.seq)
        again = whole in self._seen
        self._seen.add(whole)
        self.repeats += again
        epoch = (header.device, header.boot_epoch, header.nonce)
        if again or not self._withhold_every or len(self._seen) % self._withhold_every:
            digest = hashlib.sha256(frame).hexdigest()
            self.hashes[identity] = digest
            self.frames.add(digest)
            self._pending[epoch].add(header.seq)
        properties = message.properties
        if self._unasked or ACK_PROPERTY in getattr(properties, "UserProperty", []):
            ack = Ack(header.boot_epoch, header.nonce, ranges_of(self._pending.pop(epoch, set())))
            client.publish(down_topic(header.device, DOWN_ACK), encode_ack(ack), 1)
