"""Counters and gauges for Prometheus, read from what the loop counts anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.counts import LATENCY_BOUNDS_S, Counts


@dataclass(frozen=True, slots=True)
class Gauges:
    """What is true now. Ages in seconds; -1 when unknown."""

    outstanding: int
    outstanding_bytes: int
    oldest_s: float
    acks_pending: int
    acks_forgotten: int
    connected: bool
    devices: int
    registry_age_s: float
    registry_stale: bool
    registry_refused: int


class GatewayCollector(Collector):
    """Turns one worker's counts into metric families when it is asked."""

    def __init__(self, counts: Counts, gauges: Callable[[], Gauges]) -> None:
        self._counts = counts
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        yield from self._plain()
        yield from self._labelled()
        yield self._latency()
        yield from self._now()

    def _plain(self) -> Iterator[Metric]:
        counts = self._counts
        for name, text, value in (
            ("received", "publishes taken from the broker", counts.received),
            ("received_bytes", "their payload", counts.received_bytes),
            ("shed", "publishes over their device's rate: left in its spool", counts.shed),
            ("produced", "records that Kafka has confirmed", counts.produced),
            ("pubacks", "PUBACKs sent", counts.pubacked),
            ("stale_pubacks", "PUBACKs dropped because their connection is gone", counts.stale_pubacks),
            ("acks", "end-to-end acknowledgements sent to devices", counts.acks_sent),
            ("mqtt_connects", "connections to the broker", counts.connects),
            ("producers_replaced", "fatal producer errors", counts.producers_replaced),
        ):
            yield CounterMetricFamily(f"fleetstream_gateway_{name}", text, value=value)

    def _labelled(self) -> Iterator[Metric]:
        counts = self._counts
        for name, label, text, values in (
            ("accepted", "topic", "publishes that went to their topic", counts.accepted),
            ("refused", "reason", "publishes that went to the dead letters", counts.refused),
            ("kafka_errors", "code", "errors that the producer reported", counts.kafka_errors),
            ("commands", "outcome", "commands by what became of them", counts.commands),
        ):
            family = CounterMetricFamily(f"fleetstream_gateway_{name}", text, labels=[label])
            for key, value in dict(values).items():
                family.add_metric([key], value)
            yield family

    def _latency(self) -> Metric:
        latency = self._counts.latency
        bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(latency.buckets)), strict=True))
        name, text = "fleetstream_gateway_puback_latency_seconds", "from receipt to release of the PUBACK"
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=latency.total_s)

    def _now(self) -> Iterator[Metric]:
        now = self._gauges()
        for name, text, value in (
            ("outstanding", "publishes received and not released", now.outstanding),
            ("outstanding_bytes", "their payload", now.outstanding_bytes),
            ("oldest_outstanding_seconds", "age of the oldest of them", now.oldest_s),
            ("acks_pending_devices", "devices with a confirmation pending", now.acks_pending),
            ("acks_forgotten", "confirmations forgotten for want of room; agents ask again", now.acks_forgotten),
            ("mqtt_connected", "1 while connected", now.connected),
            ("registered_devices", "devices in the registry", now.devices),
            ("registry_age_seconds", "since the registry's last heartbeat, -1 before the first", now.registry_age_s),
            ("registry_stale", "1 when that is too old: alarm", now.registry_stale),
            ("registry_refused", "registry records that could not be read", now.registry_refused),
        ):
            yield GaugeMetricFamily(f"fleetstream_gateway_{name}", text, value=float(value))
