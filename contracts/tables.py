"""Names in the store that more than one room uses: roles, tables, views, and the columns of the stable views.

The DDL is ``infra/migrations``; a test applies it to a real PostgreSQL and compares it with this module.
"""

from __future__ import annotations

from typing import Final

ROLE_SINK: Final = "fleetstream_sink"
ROLE_API: Final = "fleetstream_api"
ROLE_READER: Final = "fleetstream_reader"
ROLE_TENANT: Final = "fleetstream_tenant"
"""Group of the per-tenant login roles for people who write SQL."""

ROLE_EVIDENCE: Final = "fleetstream_evidence"
"""Takes crash records in; reads and writes no telemetry."""

ROLE_LINKAGE: Final = "fleetstream_linkage"
"""Nobody logs in as it: owns the functions that alone may read who and where."""

ROLES: Final = (ROLE_SINK, ROLE_API, ROLE_READER, ROLE_TENANT, ROLE_EVIDENCE, ROLE_LINKAGE)
SCHEMA: Final = "fleetstream"
TENANT_SETTING: Final = "fleetstream.tenant_id"
PACKET_TABLE: Final = "packet_rows"
PACKET_RETENTION_DAYS: Final = 14
PARTITIONS_AHEAD_DAYS: Final = 7

WINDOW_OPEN: Final = 0
WINDOW_CLOSED: Final = 1
WINDOW_CHANGED: Final = 2

VIEWS: Final[dict[str, tuple[str, ...]]] = {
    "readings": ("asset", "signal", "measured_at", "value", "quality"),
    "windows": (
        "asset", "signal", "width_s", "starts_at", "n", "min", "max", "mean", "stddev", "last", "revision", "final",
    ),
    "packets": ("device", "boot_epoch", "seq", "asset", "received_at", "stored_at", "samples", "sha256"),
    "latest": ("asset", "signal", "measured_at", "value", "quality"),
    "ledger": (
        "device", "boot_epoch", "accepted_packets", "stored_packets", "duplicates_suppressed", "dropped_packets",
        "missing",
    ),
    "drops": ("device", "boot_epoch", "first_seq", "last_seq", "reason", "class", "packets", "samples"),
    "gaps": ("device", "boot_epoch", "state", "missing_packets", "missing", "since", "opened_at", "ended_at"),
    "commands": (
        "device", "command_id", "kind", "arguments", "state", "reason", "detail", "asked_by", "created_at",
    ),
    "late": ("asset", "signal", "width_s", "starts_at", "revision"),
    "publications": (
        "asset", "signal", "width_s", "starts_at", "publication", "revision", "n", "min", "max", "mean", "last",
        "published_at",
    ),
    "too_late": ("device", "signal", "received_hour", "samples", "oldest_at", "newest_at"),
    "quarantine": ("device", "reason", "samples", "received_at", "size_bytes", "sha256", "bytes"),
    "dead_letters": ("device", "reason", "detail", "received_at", "size_bytes", "sha256", "bytes"),
    "findings": (
        "finding_id", "asset", "signal", "deployment", "detector", "cause", "opened_at", "last_at", "closed_at",
        "severity", "score", "threshold", "observed", "expected_low", "expected_high", "readings", "readings_lost",
        "revision",
    ),
    "corrections": (
        "finding_id", "asset", "device", "deployment", "cause", "opened_at", "kind", "revision", "reason", "before",
        "corrected_at",
    ),
    "models": (
        "model", "name", "asset_kind", "detector", "state", "trained_from", "held_back_from", "held_back_until",
        "devices", "training_rows", "false_alarms", "hours",
    ),
    "alerts": (
        "alert_id", "asset", "cause", "state", "resolution", "severity", "assignee", "since", "last_seen_at", "running",
        "findings", "detector", "root", "level", "revision", "opened_at", "resolved_at", "changed_at", "changed_by",
    ),
    "alert_precision": (
        "tenant", "detector", "month", "alerts", "confirmed", "wrong", "unclear", "unresolved", "precision", "low",
        "high",
    ),
    "deliveries": ("channel", "kind", "alert_id", "event_no", "state", "attempts", "next_attempt_at", "last_error"),
    "edr_records": ("device", "recorder", "record_no", "profile", "source", "complete", "received_at", "sha256"),
    "edr_asides": ("device", "reason", "detail", "received_at", "set_aside_at", "sha256"),
}  # fmt: skip
"""Stable views and their first columns; more columns may follow, none of these goes away."""
