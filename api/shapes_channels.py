"""The JSON of channels, deliveries and what is at stake with an asset."""

from __future__ import annotations

from datetime import datetime, time
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ConfigDict, Field

from anomaly.alerts.gravity import Criticality
from api.shapes import AT, Shape, example

CHANNEL_ID: Final = "n-0a1b2c3d4e5f6071"
_QUIET: Final[dict[str, Any]] = {"begin": "22:00:00", "end": "06:00:00", "zone": "Europe/Berlin", "through": 4}
_CHANNEL: Final[dict[str, Any]] = {
    "channel_id": CHANNEL_ID, "name": "workshop", "kind": "webhook", "target": "https://example.org/alerts",
    "min_severity": 2, "quiet": _QUIET, "enabled": True, "created_at": AT, "created_by": "key:0a1b2c3d4e5f6071",
}  # fmt: skip


def _whole_minute(moment: time) -> time:
    if moment.second or moment.microsecond or moment.tzinfo is not None:
        raise ValueError("a local time in whole minutes, such as 22:00")
    return moment


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # a zone that is not found is a KeyError
        raise ValueError("a time zone such as Europe/Berlin") from error
    return name


Minute = Annotated[time, AfterValidator(_whole_minute)]
Zone = Annotated[str, Field(max_length=64), AfterValidator(_zone)]
Grade = Annotated[int, Field(ge=1, le=4, description="1 note, 2 warning, 3 alarm, 4 critical")]


class Quiet(Shape):
    """Local hours in which only what is at least ``through`` is sent; the rest follows at their end."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra={"examples": [_QUIET]})

    begin: Minute
    end: Minute
    zone: Zone = "UTC"
    through: Grade = 4


class NewChannel(Shape):
    """A place for messages: a webhook's address, a mail address, or ``device`` (down to the machine of the alert)."""

    model_config = ConfigDict(
        frozen=True, extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "workshop", "kind": "webhook", "target": "https://example.org/alerts", "min_severity": 2},
                {"name": "on call", "kind": "email", "target": "oncall@example.org", "quiet": _QUIET},
            ]
        },
    )  # fmt: skip

    name: str = Field(min_length=1, max_length=100)
    kind: Literal["webhook", "email", "device"]
    target: str = Field("", max_length=2_000)
    min_severity: Grade = 2
    quiet: Quiet | None = None


class Channel(Shape):
    """A channel as it stands."""

    model_config = example(**_CHANNEL)

    channel_id: str
    name: str
    kind: str
    target: str
    min_severity: int
    quiet: Quiet | None
    enabled: bool
    created_at: datetime
    created_by: str


class MadeChannel(Shape):
    """A channel at the moment it is made. ``secret`` signs webhooks and is shown once; null for other kinds."""

    model_config = example(channel=_CHANNEL, secret=None)

    channel: Channel
    secret: str | None


class Channels(Shape):
    """All channels by name."""

    items: list[Channel]


class Delivery(Shape):
    """One message to one channel. ``dead``: given up after 20 attempts."""

    model_config = example(
        delivery_id=7, alert_id="a-0a1b2c3d4e5f6071", event_no=1, severity=2, state="sent", attempts=1,
        next_attempt_at=AT, last_error="", created_at=AT, ended_at=AT,
    )  # fmt: skip

    delivery_id: int
    alert_id: str
    event_no: int
    severity: int
    state: Literal["waiting", "sent", "dead"]
    attempts: int
    next_attempt_at: datetime
    last_error: str
    created_at: datetime
    ended_at: datetime | None


class Deliveries(Shape):
    """The newest deliveries of a channel."""

    items: list[Delivery]


class Care(Shape):
    """What is at stake with an asset. Costs in any one currency; null: nobody has said, so cost moves no severity."""

    model_config = ConfigDict(
        frozen=True, extra="forbid",
        json_schema_extra={
            "examples": [{"criticality": 2, "downtime_cost_per_day": 4000, "visit_cost": 300, "currency": "EUR"}]
        },
    )  # fmt: skip

    criticality: Criticality = Field(default=Criticality.NORMAL, description="0 minor, 1 normal, 2 vital")
    downtime_cost_per_day: float | None = Field(default=None, ge=0, le=1e12)
    visit_cost: float | None = Field(default=None, ge=0, le=1e12)
    currency: str = Field(default="", max_length=3)
