"""What the room counts, in a registry of its own, so that two applications in one process do not meet."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Around the promised 200 ms; the last is the statement timeout."""


class Metrics:
    """Prometheus instruments; no device, asset or key name is ever a label."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "fleetstream_api_requests_total", "Answered requests", ("route", "method", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "fleetstream_api_request_seconds", "Time to the answer's head", ("route",), buckets=BUCKETS_S,
            registry=self.registry,
        )  # fmt: skip
        self.streams = Gauge("fleetstream_api_streams", "Open live streams", registry=self.registry)
        self.stream_skipped = Counter(
            "fleetstream_api_stream_skipped_total", "Values replaced by newer ones before a client took them",
            registry=self.registry,
        )  # fmt: skip
        self.stream_resets = Counter(
            "fleetstream_api_stream_resets_total", "Times a client was told to load afresh", registry=self.registry
        )
        self.relay_published = Counter(
            "fleetstream_api_relay_published_total", "Outbox rows in Kafka", registry=self.registry
        )
        self.relay_faults = Counter(
            "fleetstream_api_relay_faults_total", "Times the relay had to start again", registry=self.registry
        )
        self.outbox_waiting = Gauge(
            "fleetstream_api_outbox_waiting", "Outbox rows not published", registry=self.registry
        )
        self.outbox_oldest = Gauge(
            "fleetstream_api_outbox_oldest_seconds", "Age of the oldest row not published", registry=self.registry
        )
        self.commands_looked_at = Counter(
            "fleetstream_api_commands_looked_at_total", "Times the clerk decided about an open command",
            registry=self.registry,
        )  # fmt: skip
        self.command_answers = Counter(
            "fleetstream_api_command_answers_total", "Answers of devices that changed a command", registry=self.registry
        )

        self.outbox_unknown = Gauge(
            "fleetstream_api_outbox_unknown_topic", "Outbox rows whose topic this version does not know",
            registry=self.registry,
        )  # fmt: skip
        self.resubmitted = Counter(
            "fleetstream_api_resubmitted_total", "Dead letters sent into the log again", registry=self.registry
        )
        self.limited = Counter(
            "fleetstream_api_limited_total", "Requests refused because their key or address had its share",
            ("limit",), registry=self.registry,
        )  # fmt: skip
        self.latest_told = Counter(
            "fleetstream_api_latest_told_total", "Latest values written to their topic", registry=self.registry
        )

        self._count_alerts()

    def _count_alerts(self) -> None:
        """What the warden and the courier count."""
        self.findings_taken = Counter(
            "fleetstream_api_findings_taken_total", "Findings that alerts were made of", registry=self.registry
        )
        self.findings_refused = Counter(
            "fleetstream_api_findings_refused_total", "Findings that the store would make no alert of",
            registry=self.registry,
        )  # fmt: skip
        self.alert_steps = Counter(
            "fleetstream_api_alert_steps_total", "Steps of alerts that the warden made", ("kind",),
            registry=self.registry,
        )  # fmt: skip
        self.deliveries = Counter(
            "fleetstream_api_alert_deliveries_total", "Attempts to send a message about an alert",
            ("kind", "outcome"), registry=self.registry,
        )  # fmt: skip
        self.deliveries_waiting = Gauge(
            "fleetstream_api_alert_deliveries_waiting", "Messages about alerts that are not sent yet",
            registry=self.registry,
        )  # fmt: skip
        self.deliveries_dead = Gauge(
            "fleetstream_api_alert_deliveries_dead",
            "Messages about alerts that were given up within the last day: an alarm", registry=self.registry,
        )  # fmt: skip

    def text(self) -> bytes:
        return generate_latest(self.registry)
