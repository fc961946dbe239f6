"""The JSON of crash records: elements with unit, resolution, accuracy and mark of their source; null is never zero."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from api.shapes import AT, Shape, example
from contracts.edr.export import NOTICE

SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
EVENT = "000102030405060708090a0b0c0d0e0f-7-123487789"


class CrashNotice(Shape):
    """Something happened. ``speed_kmh`` null: the device has no source. Where it is, is read by role."""

    model_config = example(
        event_id=EVENT, device="car-001", asset="Car 1", received_at=AT, profile="part563-2024",
        source="aftermarket_device", trigger="delta_v", event_number=1, speed_kmh=52.3, restraints=[],
    )  # fmt: skip

    event_id: str
    device: str
    asset: str | None
    received_at: datetime
    profile: str
    source: str = Field(description="oem_edr_download, aftermarket_device or simulated")
    trigger: str
    event_number: int
    speed_kmh: float | None
    restraints: list[str]


class LiveNotice(Shape):
    """Data of a ``notice`` event of the live stream."""

    at: datetime
    notice: CrashNotice


class CrashNotices(Shape):
    """Notices, newest first."""

    as_of: datetime
    items: list[CrashNotice]
    next: str | None


class CrashPosition(Shape):
    """Where to look. Null: the device knew no position. ``clock_trusted`` false: the time may be wrong."""

    model_config = example(
        event_id=EVENT, latitude=49.0117, longitude=8.4, position_age_ms=400, happened_at=AT, clock_trusted=True
    )

    event_id: str
    latitude: float | None
    longitude: float | None
    position_age_ms: int | None
    happened_at: datetime
    clock_trusted: bool


class CrashLinkage(CrashPosition):
    """Who, where and when, with a legal basis that permits it."""

    model_config = example(
        event_id=EVENT, latitude=49.0117, longitude=8.4, position_age_ms=400, happened_at=AT, clock_trusted=True,
        record=SHA, vin="WVWZZZ1KZ00000000", driver="d-17",
    )  # fmt: skip

    record: str
    vin: str | None
    driver: str | None


class CrashSummary(Shape):
    """That a record is held, and how; what it says needs a legal basis. ``record`` is its SHA-256.

    Read for research, ``device``, ``asset`` and the times are null: nobody is identified.
    """

    model_config = example(
        record=SHA, device="car-001", asset="Car 1", event_id=EVENT, recorder="000102030405060708090a0b0c0d0e0f",
        record_no=3, profile="part563-2024", profile_version=1, source="aftermarket_device", trigger="delta_v",
        complete=True, locked=False, trust="root", chain="follows", replaced=False, received_at=AT, stored_at=AT,
    )  # fmt: skip

    record: str
    device: str | None
    asset: str | None
    event_id: str
    recorder: str
    record_no: int
    profile: str
    profile_version: int
    source: str
    trigger: str
    complete: bool
    locked: bool
    trust: str = Field(description="root: certificates end in a trusted root; simulated: worth nothing as evidence")
    chain: str = Field(description="first, follows (its predecessor is held) or apart (it is not held here)")
    replaced: bool = Field(description="a later record of the same event is held")
    received_at: datetime | None
    stored_at: datetime | None


class CrashRecords(Shape):
    """Records, newest first."""

    as_of: datetime
    items: list[CrashSummary]
    next: str | None


class Accuracy(Shape):
    """How far a value may be from the true one, by the profile's table."""

    kind: str = Field(description="absolute (in unit), percent (of value), percent_of_range or none")
    value: float


class CrashElement(Shape):
    """One element of the profile. ``values`` null: not available; null inside: nothing fresh at that instant."""

    model_config = example(
        name="speed", title="Speed, vehicle indicated", status="recorded", kind="series", unit="km/h", table="563 I",
        presence="required", mark="confirmed", condition="", note="", resolution=1.0, minimum=0.0, maximum=200.0,
        accuracy={"kind": "absolute", "value": 1.0}, states=[], first_ms=-5000.0, step_ms=500.0, values=[50.0, None],
        saturated_from_ms=None, clamped=False,
    )  # fmt: skip

    name: str
    title: str
    status: str
    kind: str
    unit: str
    table: str
    presence: str
    mark: str = Field(description="how sure the profile's row is: confirmed, corroborated or unsure")
    condition: str
    note: str
    resolution: float
    minimum: float
    maximum: float
    accuracy: Accuracy
    states: list[str]
    first_ms: float | None = Field(description="time of the first value after time zero")
    step_ms: float | None = Field(description="between two values; 0 for a single one")
    values: list[float | str | None] | None
    saturated_from_ms: int | None = Field(description="from there on the sensor stood at its limit")
    clamped: bool | None = Field(description="a value lay outside of the table's range")


class CrashAttachment(Shape):
    """Raw data that the record claims by hash; ``state`` whole, arriving or missing."""

    name: str
    sha256: str
    size_bytes: int
    state: str


class CrashRecord(Shape):
    """A decoded record: the summary, the profile that shaped it, the event and every element."""

    notice: str = NOTICE
    summary: CrashSummary
    profile_title: str
    profile_status: str
    profile_mark: str
    custody_entry: int = Field(description="number of the custody entry of this very read")
    key_id: str
    algorithm: str
    previous_sha256: str
    event: dict[str, Any] = Field(description="times in microseconds, relative to time zero unless they say otherwise")
    elements: list[CrashElement]
    attachments: list[CrashAttachment]


class CustodyEntry(Shape):
    """Who read, or was refused to read, what, and on which legal basis."""

    model_config = example(
        entry_no=7, at=AT, actor="", key_id="0a1b2c3d4e5f6071", role="insurer", action="show", subject=SHA,
        purpose="claim 4711", basis="owner_consent", reference="consent 12", outcome="allowed", reason="owner_consent",
        sha256=SHA,
    )  # fmt: skip

    entry_no: int
    at: datetime
    actor: str
    key_id: str
    role: str
    action: str
    subject: str
    purpose: str
    basis: str
    reference: str
    outcome: str
    reason: str
    sha256: str


class Custody(Shape):
    """The custody log, newest first."""

    as_of: datetime
    items: list[CustodyEntry]
    next: str | None


def notice_shape(row: Mapping[str, Any]) -> CrashNotice:
    """A row of ``evidence_notices`` with its device and asset."""
    notice = row["notice"]
    speed = notice["speed_dkmh"]
    return CrashNotice(
        event_id=row["event_id"], device=row["device"], asset=row["asset"], received_at=row["received_at"],
        profile=notice["profile"], source=notice["source"], trigger=notice["trigger"],
        event_number=notice["event_number"], speed_kmh=None if speed is None else speed / 10,
        restraints=notice["restraints"],
    )  # fmt: skip
