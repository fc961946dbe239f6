"""The JSON that leaves the API: every answer with units, quality and RFC 3339 times in UTC, each with an example.

Values are null when there is none; a missing window or reading is absent. Nothing is filled in.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from api.state import State
from contracts.packet import Quality

_QUALITIES = {quality.value: quality.name.lower() for quality in Quality}
AT = "2026-11-21T12:00:00Z"


def quality_name(code: int) -> str:
    """``good``, ``uncertain``, …; a code newer than this version is told as its number."""
    return _QUALITIES.get(code, f"code_{code}")


def answer(shape: type[BaseModel], **fields: Any) -> Response:
    """JSON of a shape, validated once; FastAPI would validate a returned model again, which long answers pay for."""
    body = shape.model_validate(fields, by_name=True)
    return Response(body.model_dump_json(by_alias=True), media_type="application/json")


def example(**example: Any) -> ConfigDict:
    return ConfigDict(frozen=True, json_schema_extra={"examples": [example]})


class Shape(BaseModel):
    """Immutable JSON object."""

    model_config = ConfigDict(frozen=True)


class WhoAmI(Shape):
    """The caller as the service knows it."""

    model_config = example(key_id="0a1b2c3d4e5f6071", tenant="north", role="operator")

    key_id: str
    tenant: str
    role: str


class SignalShape(Shape):
    """One row of the signal catalogue; ``minimum`` and ``maximum`` are inclusive and in ``unit``."""

    model_config = example(
        number=1, path="Vehicle.Speed", unit="km/h", resolution=0.01, minimum=-250, maximum=500, kind="gauge",
        axis="", source="VSS 6.0", text="Speed over ground as the vehicle indicates it.", retired=False,
    )  # fmt: skip

    number: int
    path: str
    unit: str
    resolution: float
    minimum: float
    maximum: float
    kind: str
    axis: str
    source: str
    text: str
    retired: bool


class Signals(Shape):
    """The catalogue."""

    items: list[SignalShape]


class LatestValue(Shape):
    """The newest value of one signal, with what is needed to judge it."""

    model_config = example(
        signal="Vehicle.Speed", value=87.5, unit="km/h", quality="good", measured_at=AT, received_at=AT, age_s=1.4,
        device="car-001",
    )  # fmt: skip

    signal: str
    value: float | None
    unit: str
    quality: str
    measured_at: datetime
    received_at: datetime | None = Field(description="null: the device has moved on, its newest window tells the value")
    age_s: float = Field(description="as_of - measured_at; negative when the device's clock is ahead")
    device: str


class Asset(Shape):
    """One asset, the state and the age of its data. ``age_s`` null: it never sent anything."""

    model_config = example(
        name="car-001", kind="car", devices=["car-001"], state="live", measured_at=AT, received_at=AT, age_s=1.4,
        signals=24, values=[],
    )  # fmt: skip

    name: str
    kind: str
    devices: list[str] = Field(description="devices bound to it now")
    state: State
    measured_at: datetime | None = Field(description="event time of its newest value")
    received_at: datetime | None = Field(description="when anything of its latest values arrived")
    age_s: float | None = Field(description="as_of - measured_at")
    signals: int = Field(description="how many signals have a value")
    values: list[LatestValue] = Field(description="the signals asked for by 'signal'")


class Assets(Shape):
    """A page of assets by name; ``next`` null: the last page."""

    as_of: datetime
    items: list[Asset]
    next: str | None


class AssetLatest(Shape):
    """One asset with the latest value of every signal."""

    as_of: datetime
    asset: Asset


class Reading(Shape):
    """One stored sample; value null: the sensor sent something that is no number (see quality)."""

    model_config = example(measured_at=AT, value=87.5, quality="good", device="car-001", boot_epoch=3, seq=118)

    measured_at: datetime
    value: float | None
    quality: str
    device: str
    boot_epoch: int
    seq: int


class Readings(Shape):
    """Readings in [from, to), oldest first; follow ``next`` until it is null, also when ``items`` is short."""

    asset: str
    signal: str
    unit: str
    start: datetime = Field(serialization_alias="from")
    end: datetime = Field(serialization_alias="to")
    items: list[Reading]
    next: str | None


class Window(Shape):
    """Aggregate of a window's good samples; ``revision`` counts late corrections; ``final``: changes no more."""

    model_config = example(
        starts_at=AT, n=10, min=86.0, max=88.2, mean=87.1, stddev=0.7, last=87.5, revision=1, closed=True, final=False,
        device="car-001", late_at=[AT], first_n=8, first_mean=86.9, first_said_at=AT,
    )  # fmt: skip

    starts_at: datetime
    n: int
    min: float
    max: float
    mean: float
    stddev: float | None
    last: float
    revision: int
    closed: bool
    final: bool
    device: str
    late_at: list[datetime] = Field(description="minutes in which packets came too late for the window as first said")
    first_n: int | None = Field(description="samples when it was first said; null where nothing was corrected")
    first_mean: float | None
    first_said_at: datetime | None


class Windows(Shape):
    """Windows that start in [from, to), oldest first; a window that is absent holds no sample."""

    asset: str
    signal: str
    unit: str
    width_s: int
    start: datetime = Field(serialization_alias="from")
    end: datetime = Field(serialization_alias="to")
    items: list[Window]
    next: str | None


class Health(Shape):
    """Whether the process can serve; ``reasons`` says what is in the way."""

    model_config = example(ready=True, reasons=[])

    ready: bool
    reasons: list[str]


class Version(Shape):
    """What runs here."""

    model_config = example(name="fleetstream", version="0.1.0", api="v1")

    name: str
    version: str
    api: str


class BadParameter(Shape):
    """One parameter that cannot be accepted."""

    parameter: str
    detail: str


class Problem(Shape):
    """RFC 9457 problem details: what every error looks like."""

    model_config = example(
        type="urn:fleetstream:problem:range_too_long", title="The question cannot be answered", status=422,
        detail="at most 604800 s at once; ask for one part after the other", code="range_too_long",
        errors=[{"parameter": "from", "detail": "at most 604800 s at once; ask for one part after the other"}],
    )  # fmt: skip

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[BadParameter] = []


class LiveValue(Shape):
    """One changed latest value in the live stream."""

    asset: str
    signal: str
    value: float | None
    unit: str
    quality: str
    measured_at: datetime
    received_at: datetime


class LiveFrame(Shape):
    """Data of one event; ``skipped``: values replaced by newer ones before this client took them."""

    at: datetime
    skipped: int
    values: list[LiveValue]
