"""What the evidence consumer counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from stream_jobs.evidence.store import Outcome


class EvidenceMetrics:
    """Counters; an alarm belongs on ``fleetstream_evidence_refused``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "fleetstream_evidence_"
        self._parcels = Counter(f"{prefix}parcels", "parcels by what became of them", ("outcome",), registry=registry)
        self._refused = Counter(f"{prefix}refused", "parcels kept aside", ("reason",), registry=registry)
        self._roots = Counter(f"{prefix}day_roots", "days of logs that got their root", registry=registry)
        self._removed = Counter(
            f"{prefix}unclaimed_removed", "raw data removed because no record claimed them", registry=registry
        )

    def took(self, outcome: Outcome) -> None:
        """Count a committed batch."""
        for name, count in outcome.counts.items():
            self._parcels.labels(name).inc(count)
        for reason, count in outcome.reasons.items():
            self._refused.labels(reason).inc(count)

    def ended(self, days: int) -> None:
        self._roots.inc(days)

    def removed(self, attachments: int) -> None:
        self._removed.inc(attachments)
