"""What the store keeps of a parcel, row by row, and the digest by which the evidence log knows it. Pure.

The evidence consumer makes these contents when it stores; whoever examines the log makes them again from the rows and
compares the digests, so that a changed row is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from contracts.edr.capsule import Capsule
from contracts.edr.profiles import Profile
from contracts.edr.record import EventRecord
from contracts.edr.wire import Linkage, Notice

Content = dict[str, Any]

_IN_ROWS_OF_THEIR_OWN = frozenset({"elements", "not_available", "attachments"})
RECORD_COLUMNS = (
    "sha256", "device_key", "event_id", "recorder_id", "record_no", "previous_sha256", "profile", "profile_version",
    "profile_sha256", "schema_version", "source", "trigger", "complete", "locked", "event", "key_id", "algorithm",
    "root_sha256", "trust",
)  # fmt: skip
"""Columns of ``evidence_records`` that the log vouches for."""

ELEMENT_COLUMNS = (
    "position", "name", "status", "kind", "unit", "resolution", "states", "steps", "first", "step_us",
    "saturated_from_ms", "clamped",
)  # fmt: skip
LINKAGE_COLUMNS = (
    "event_id", "zero_at_ms", "clock_trusted", "vin", "driver", "latitude_e7", "longitude_e7", "position_age_ms",
)  # fmt: skip
ATTACHMENT_COLUMNS = ("event_id", "sha256", "name", "size_bytes")
ASIDE_COLUMNS = ("bytes_sha256", "reason", "detail")


def event_content(record: EventRecord) -> Content:
    """The event and the claims on attachments, as JSON holds them."""
    event = {name: getattr(record, name) for name in EventRecord.__slots__ if name not in _IN_ROWS_OF_THEIR_OWN}
    claims = [[claim.name, claim.sha256.hex(), claim.size_bytes] for claim in record.attachments]
    return {**event, "attachments": claims}


def record_content(capsule: Capsule, event_id: str, device_key: int, root_sha256: bytes, trust: str) -> Content:
    """What a record's own row says: ``RECORD_COLUMNS``."""
    head, record = capsule.head, capsule.record
    values = (
        capsule.sha256, device_key, event_id, head.place.recorder_id, head.place.record_no, head.place.previous_sha256,
        head.profile, head.profile_version, head.profile_sha256, head.schema, record.source, record.trigger,
        record.complete, record.locked, event_content(record), head.key_id, head.algorithm, root_sha256, trust,
    )  # fmt: skip
    return dict(zip(RECORD_COLUMNS, values, strict=True))


def element_contents(record: EventRecord, profile: Profile) -> list[Content]:
    """One row per element of the profile, in its order; what has no source is not available, never zero."""
    rows = []
    for position, element in enumerate(profile.elements, 1):
        value = record.value(element.name)
        rows.append(
            {
                "position": position,
                "name": element.name,
                "status": "not_available" if value is None else "recorded",
                "kind": element.kind,
                "unit": element.unit,
                "resolution": str(element.resolution),
                "states": list(element.states),
                "steps": None if value is None else list(value.values),
                "first": None if value is None else value.first,
                "step_us": None if value is None else value.step_us,
                "saturated_from_ms": None if value is None else value.saturated_from_ms,
                "clamped": None if value is None else value.clamped,
            }
        )
    return rows


def whole_record(record: Mapping[str, Any], elements: Sequence[Mapping[str, Any]]) -> Content:
    """What the log hashes of a record: its row and its elements; the bytes are in ``sha256``."""
    return {
        "record": {name: record[name] for name in RECORD_COLUMNS},
        "elements": [
            {name: str(row[name]) if name == "resolution" else row[name] for name in ELEMENT_COLUMNS}
            for row in elements
        ],
    }


def notice_content(notice: Notice) -> Content:
    """A notice as JSON holds it."""
    return {**asdict(notice), "restraints": list(notice.restraints)}


def linkage_content(linkage: Linkage) -> Content:
    """A linkage as its row holds it: ``LINKAGE_COLUMNS``."""
    return asdict(linkage)


def columns(row: Mapping[str, Any], names: Sequence[str]) -> Content:
    """Of a row, what the log vouches for."""
    return {name: row[name] for name in names}
