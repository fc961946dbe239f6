"""The only place that knows concrete classes: settings in, a worker that can be run out."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import Producer as ConfluentProducer
from prometheus_client import CollectorRegistry

from contracts.topics import GATEWAY_FILTER, Topics
from gateway.acker import Acker
from gateway.admission import Admission
from gateway.commands import CommandFeed
from gateway.counts import Counts
from gateway.errors import SettingsError
from gateway.health import HealthServer
from gateway.limiter import Limiter
from gateway.link import Link, LinkSettings
from gateway.metrics import GatewayCollector, Gauges
from gateway.outlet import ErrorReport, Outlet, Producer
from gateway.registry import EpochView, RegistryFeed, RegistryView
from gateway.relay import Clocks, Relay
from gateway.settings import GatewaySettings
from gateway.window import AckWindow

DEAD_AFTER_S = 60.0
"""A loop that has not come round for this long is dead; its longest wait is one connect."""

CLOCKS = Clocks(time.monotonic, time.time)


@dataclass(slots=True)
class Gateway:
    """One worker and its health page."""

    settings: GatewaySettings
    relay: Relay
    health: HealthServer

    def run(self) -> None:
        """Until ``request_stop``."""
        self.health.start()
        try:
            self.relay.run(self.settings.drain_timeout_s)
        finally:
            self.health.close()

    def request_stop(self) -> None:
        self.relay.request_stop()


def build(settings: GatewaySettings, clocks: Clocks = CLOCKS) -> Gateway:
    """Raises SettingsError when a certificate file is missing or the health port is taken."""
    topics, counts, view, epochs = Topics(settings.topic_prefix), Counts(), RegistryView(), EpochView()
    window = AckWindow(settings.outstanding_messages, settings.outstanding_bytes)
    acker = Acker(settings.ack_after_ms / 1000)
    admission = Admission(topics, view.devices, epochs=epochs.devices, verify_whole=settings.verify == "whole")
    limiter = Limiter(settings.device_packets_per_s, settings.device_burst_packets)
    relay = Relay(admission, limiter, window, acker, counts, clocks)
    link = _link(settings, counts, relay)
    outlet = Outlet(lambda report: _producer(settings, report), window, counts)
    registry = RegistryFeed(_facts_consumer(settings, "registry"), topics.registry.name, view)
    known = RegistryFeed(_facts_consumer(settings, "epochs"), topics.epochs.name, epochs, "epochs")
    commands = CommandFeed(_command_consumer(settings, topics), link, counts)
    relay.attach(link, outlet, (registry, known), commands)
    watch = Watch(settings, relay, link, window, acker, registry, known, view, clocks)
    metrics = CollectorRegistry()
    metrics.register(GatewayCollector(counts, watch.gauges))
    try:
        health = HealthServer(settings.metrics_host, settings.metrics_port, watch.dead, watch.not_ready, metrics)
    except OSError as error:
        raise SettingsError(f"The health port {settings.metrics_port} cannot be used ({error}); set another") from error
    return Gateway(settings, relay, health)


@dataclass(frozen=True, slots=True)
class Watch:
    """What is wrong now, for probes and gauges; reads from the loop's state without touching it."""

    settings: GatewaySettings
    relay: Relay
    link: Link
    window: AckWindow
    acker: Acker
    registry: RegistryFeed
    epochs: RegistryFeed
    view: RegistryView
    clocks: Clocks

    def dead(self) -> list[str]:
        silent_s = self.clocks.monotonic_s() - self.relay.beat_s
        return [f"the loop has not come round for {silent_s:.0f} s"] if silent_s > DEAD_AFTER_S else []

    def not_ready(self) -> list[str]:
        reasons = self.dead()
        if not self.registry.complete:
            reasons.append("the registry topic has not been read to its end yet")
        elif not self.epochs.complete:
            reasons.append("the topic of known epochs has not been read to its end yet")
        elif not self.link.subscribed:
            reasons.append(self.link.refusal or "not subscribed at the MQTT broker yet")
        if self._oldest_s() * 1000 > self.settings.stalled_after_ms:
            reasons.append(f"Kafka has not confirmed a record for {self._oldest_s():.0f} s; nothing is acknowledged")
        return reasons

    def gauges(self) -> Gauges:
        age_ms = self.view.age_ms(int(self.clocks.wall_s() * 1000))
        return Gauges(
            outstanding=len(self.window),
            outstanding_bytes=self.window.size_bytes,
            oldest_s=self._oldest_s(),
            acks_pending=len(self.acker),
            acks_forgotten=self.acker.forgotten,
            connected=self.link.connected,
            devices=len(self.view.devices),
            registry_age_s=-1.0 if age_ms is None else age_ms / 1000,
            registry_stale=age_ms is None or age_ms > self.settings.registry_max_age_ms,
            registry_refused=self.view.refused,
        )

    def _oldest_s(self) -> float:
        oldest_s = self.window.oldest_s
        return 0.0 if oldest_s is None else self.clocks.monotonic_s() - oldest_s


def _link(settings: GatewaySettings, counts: Counts, relay: Relay) -> Link:
    for file in (settings.ca_file, settings.certificate_file, settings.key_file):
        if not file.is_file():
            raise SettingsError(f"{file} is missing; the gateway needs ca_file, certificate_file and key_file")
    link_settings = LinkSettings(
        host=settings.mqtt_host,
        port=settings.mqtt_port,
        client_id=settings.worker_id,
        ca_file=settings.ca_file,
        certificate_file=settings.certificate_file,
        key_file=settings.key_file,
        subscription=f"$share/{settings.share_group}/{GATEWAY_FILTER}",
        keepalive_s=settings.keepalive_s,
        connect_timeout_s=settings.connect_timeout_s,
        session_expiry_s=settings.session_expiry_s,
        receive_maximum=settings.receive_maximum,
    )
    return Link(link_settings, counts, relay.receive)


def _producer(settings: GatewaySettings, report: ErrorReport) -> Producer:
    return ConfluentProducer({  # type: ignore[return-value]
        **_client(settings, report),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "zstd",
        "linger.ms": settings.linger_ms,
        "message.timeout.ms": 0,  # never gives up by itself: the broker and the spools hold the rest
        "queue.buffering.max.messages": 2 * settings.outstanding_messages,
        "queue.buffering.max.kbytes": 2 * settings.outstanding_bytes // 1024,
    })  # fmt: skip


def _facts_consumer(settings: GatewaySettings, what: str) -> Consumer:
    return Consumer({
        **_client(settings),
        "group.id": f"{settings.topic_prefix}.{settings.worker_id}.{what}",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": 16 * 1024,
    })  # fmt: skip


def _command_consumer(settings: GatewaySettings, topics: Topics) -> Consumer:
    consumer = Consumer({
        **_client(settings),
        "group.id": f"{settings.topic_prefix}.gateway.commands",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "queued.max.messages.kbytes": 4 * 1024,
    })  # fmt: skip
    consumer.subscribe([topics.commands.name])
    return consumer


def _client(settings: GatewaySettings, report: ErrorReport | None = None) -> dict[str, object]:
    return {
        "bootstrap.servers": settings.kafka_bootstrap,
        "client.id": settings.worker_id,
        "log_level": 3,
        "reconnect.backoff.max.ms": 2_000,
        "error_cb": report or _ignore,
    }


def _ignore(_error: KafkaError) -> None:
    """A consumer's trouble shows as the age of what it knows."""
