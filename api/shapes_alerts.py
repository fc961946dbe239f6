"""The JSON of findings and alerts: what was seen, what was expected, how sure, how often wrong, what to do."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic import AwareDatetime, ConfigDict, Field

from api.shapes import AT, Shape, example
from contracts.alert import AlertState, Resolution, StepKind

FINDING_ID: Final = "9f86d081884c7d659a2feaa0c55ad015"
ALERT_ID: Final = "a-0a1b2c3d4e5f6071"
_FINDING: Final[dict[str, Any]] = {
    "finding_id": FINDING_ID, "asset": "Car 1", "device": "car-001", "cause": "cooling", "detector": "coolant-own-past",
    "method": "own_past", "version": "0123456789abcdef",
    "signal": "Vehicle.Powertrain.CombustionEngine.EngineCoolant.Temperature", "unit": "Celsius", "opened_at": AT,
    "last_at": AT, "closed_at": None, "severity": 2, "score": 7.5, "threshold": 4.0, "observed": 118.5,
    "expected_low": 84.0, "expected_high": 96.0, "probability": 1e-6, "readings": 31, "readings_lost": False,
    "revision": 1, "advice": "Look at the coolant's level.", "corrections": 0, "retracted_at": None, "alert": ALERT_ID,
}  # fmt: skip
_ALERT: Final[dict[str, Any]] = {
    "alert_id": ALERT_ID, "asset": "Car 1", "device": "car-001", "cause": "cooling", "state": "new", "resolution": None,
    "severity": 2, "assignee": None, "since": AT, "last_seen_at": AT, "running": True, "findings": 1,
    "detector": "coolant-own-past", "root": None, "grouped": 0, "level": 0, "revision": 0, "opened_at": AT,
    "resolved_at": None, "changed_at": AT, "changed_by": "warden", "event_no": 1, "suppressed_until": None,
    "escalate_at": AT, "told_severity": 2, "sureness": 0.75, "finding_id": FINDING_ID,
}  # fmt: skip


class FindingShape(Shape):
    """One excursion that a detector found. ``observed`` and the expected band belong to its worst reading."""

    model_config = example(**_FINDING)

    finding_id: str
    asset: str | None
    device: str
    cause: str = Field(description="family of faults; there is one alert per asset and cause")
    detector: str = Field(description="name under which a detector with frozen parameters works")
    method: str
    version: str
    signal: str
    unit: str
    opened_at: datetime
    last_at: datetime = Field(description="event time up to which this speaks")
    closed_at: datetime | None
    severity: int = Field(description="1 note, 2 warning, 3 alarm, 4 critical")
    score: float = Field(description="in the detector's own unit; above the threshold is an alarm")
    threshold: float
    observed: float | None
    expected_low: float | None
    expected_high: float | None
    probability: float | None = Field(
        description="how rare such a reading is on a healthy device; null: it cannot tell"
    )
    readings: int = Field(description="moments in alarm")
    readings_lost: bool = Field(description="readings of this time came too late to be judged")
    revision: int
    advice: str
    corrections: int = Field(description="how often readings that came late changed it")
    retracted_at: datetime | None = Field(description="since when readings that came late contradict it")
    alert: str | None = Field(description="the alert that it belongs to; null for some moments after it was found")


class Findings(Shape):
    """A page of findings, newest first."""

    as_of: datetime
    items: list[FindingShape]
    next: str | None


class Contribution(Shape):
    """How much of the score a signal carried; shares add up to about 1."""

    signal: str
    unit: str
    share: float


class ExplainPoint(Shape):
    """A window of the signal around the finding."""

    at: datetime
    min: float
    mean: float
    max: float


class Band(Shape):
    """What was expected of the signal; null: no bound on that side."""

    low: float | None
    high: float | None


class Around(Shape):
    """The signal around the finding, without what was never measured."""

    signal: str
    unit: str
    width_s: int
    start: datetime = Field(serialization_alias="from")
    end: datetime = Field(serialization_alias="to")
    expected: Band
    points: list[ExplainPoint]


class Peers(Shape):
    """The same signal in the same time on other assets of the kind: means of so many ``assets``, as percentiles."""

    assets: int
    low: float = Field(description="10th percentile")
    median: float
    high: float = Field(description="90th percentile")


class Believed(Shape):
    """How often this detector was right so far, as people resolved its alerts. ``precision`` null: nobody judged."""

    detector: str
    confirmed: int
    wrong: int
    unclear: int
    precision: float | None
    sureness: float = Field(
        description="chance that its next alert is right; a detector nobody judged is believed half"
    )


class SimilarCase(Shape):
    """An alert of the same cause that was resolved. ``distance``: 0 when the same signals carried it to the same share,
    1 when others did."""

    alert_id: str
    asset: str | None
    detector: str
    resolution: Resolution
    resolved_at: datetime
    note: str
    distance: float


class Correction(Shape):
    """What readings that came late changed of a finding; the last five are what it had said, null where nothing."""

    kind: str = Field(description="added, amended, restored or retracted")
    revision: int
    reason: str
    corrected_at: datetime
    opened_at: datetime | None
    closed_at: datetime | None
    severity: int | None
    score: float | None
    observed: float | None


class Explanation(Shape):
    """One finding and what explains it."""

    model_config = example(
        finding=_FINDING, contributions=[{"signal": _FINDING["signal"], "unit": "Celsius", "share": 1.0}],
        around={
            "signal": _FINDING["signal"], "unit": "Celsius", "width_s": 60, "from": AT, "to": AT,
            "expected": {"low": 84.0, "high": 96.0}, "points": [{"at": AT, "min": 117.0, "mean": 118.0, "max": 118.5}],
        },
        peers={"assets": 12, "low": 85.1, "median": 89.7, "high": 93.0},
        believed={
            "detector": "coolant-own-past", "confirmed": 8, "wrong": 2, "unclear": 1, "precision": 0.8,
            "sureness": 0.75,
        },
        similar=[], also=[], corrections=[],
    )  # fmt: skip

    finding: FindingShape
    contributions: list[Contribution]
    around: Around
    also: list[Around] = Field(description="the other signals that the detector looked at, in the same time")
    corrections: list[Correction]
    peers: Peers | None
    believed: Believed
    similar: list[SimilarCase]


class AlertShape(Shape):
    """One alert: all findings of a cause on an asset. ``severity`` is graded by criticality and cost."""

    model_config = example(**_ALERT)

    alert_id: str
    asset: str | None
    device: str
    cause: str
    state: AlertState
    resolution: Resolution | None
    severity: int = Field(description="1 note, 2 warning, 3 alarm, 4 critical")
    assignee: str | None
    since: datetime
    last_seen_at: datetime
    running: bool
    findings: int
    detector: str
    root: str | None = Field(description="the alert of the storm that this one is grouped under")
    grouped: int = Field(description="how many are grouped under this one")
    level: int = Field(description="how often it was escalated")
    revision: int = Field(description="how often late data took back what had been said")
    opened_at: datetime
    resolved_at: datetime | None
    changed_at: datetime
    changed_by: str
    event_no: int
    suppressed_until: datetime | None
    escalate_at: datetime | None
    told_severity: int = Field(description="what detectors said, before criticality and cost")
    sureness: float = Field(description="how often its detector was right when it was last graded")
    finding_id: str = Field(description="its strongest finding")


class Alerts(Shape):
    """A page of alerts, newest first."""

    as_of: datetime
    items: list[AlertShape]
    next: str | None


class AlertEvent(Shape):
    """One step of an alert's life: when, by whom (``key:``, ``cli:`` or ``warden``), from where to where, and why."""

    event_no: int
    kind: StepKind
    at: datetime
    by_whom: str
    from_state: AlertState | None
    to_state: AlertState
    severity: int
    resolution: Resolution | None
    assignee: str | None
    root: str | None
    note: str


class AlertItem(Shape):
    """A finding of an alert; ``holds`` false: late data took it back."""

    finding_id: str
    signal: str
    detector: str
    severity: int
    opened_at: datetime
    last_at: datetime
    closed_at: datetime | None
    holds: bool


class GroupedAlert(Shape):
    """An alert of the same storm."""

    alert_id: str
    cause: str
    asset: str | None
    state: AlertState
    severity: int


class AlertWhole(Shape):
    """One alert with its life, its findings, and where it may be moved from here."""

    model_config = example(
        alert=_ALERT, moves=["acknowledged", "assigned", "in_progress", "resolved", "suppressed"], events=[], items=[],
        children=[],
    )  # fmt: skip

    alert: AlertShape
    moves: list[AlertState]
    events: list[AlertEvent]
    items: list[AlertItem]
    children: list[GroupedAlert]


class Transition(Shape):
    """A move. ``resolution`` belongs to resolved, ``assignee`` to assigned, ``suppress_until`` to suppressed."""

    model_config = ConfigDict(
        frozen=True, extra="forbid",
        json_schema_extra={
            "examples": [
                {"to_state": "acknowledged", "event_no": 1},
                {"to_state": "resolved", "resolution": "false", "note": "the sensor's plug was wet", "actor": "Ada"},
            ]
        },
    )  # fmt: skip

    to_state: AlertState
    resolution: Resolution | None = None
    assignee: str | None = Field(None, min_length=1, max_length=100)
    suppress_until: AwareDatetime | None = None
    note: str = Field("", max_length=2_000)
    actor: str = Field("", max_length=100, description="who asks through this key; stands in the history")
    event_no: int | None = Field(None, ge=1, description="as it was read; 409 when the alert has gone on since")


class DetectorMonth(Shape):
    """How often a detector was right in a month. ``low`` to ``high``: Wilson's interval of 95 %."""

    model_config = example(
        detector="coolant-own-past", month=AT, alerts=12, confirmed=8, wrong=2, unclear=1, unresolved=1, precision=0.8,
        low=0.49, high=0.94,
    )  # fmt: skip

    detector: str
    month: datetime = Field(description="its first moment, UTC")
    alerts: int
    confirmed: int
    wrong: int
    unclear: int
    unresolved: int
    precision: float | None
    low: float | None
    high: float | None


class Precision(Shape):
    """Precision per detector and month, newest first."""

    as_of: datetime
    items: list[DetectorMonth]


class WorkOrder(Shape):
    """What a workshop needs of an alert: where, what, since when, how urgent, what to do."""

    model_config = example(
        work_order=ALERT_ID, asset="Car 1", device="car-001", cause="cooling", severity=3, state="assigned",
        assignee="Ada", since=AT, last_seen_at=AT, running=True, signal=_FINDING["signal"], unit="Celsius",
        observed=118.5, expected_low=84.0, expected_high=96.0, detector="coolant-own-past", sureness=0.75,
        advice="Look at the coolant's level.", notes="", exported_at=AT,
    )  # fmt: skip

    work_order: str
    asset: str | None
    device: str
    cause: str
    severity: int
    state: AlertState
    assignee: str | None
    since: datetime
    last_seen_at: datetime
    running: bool
    signal: str | None
    unit: str | None
    observed: float | None
    expected_low: float | None
    expected_high: float | None
    detector: str
    sureness: float
    advice: str | None
    notes: str
    exported_at: datetime


class WorkOrders(Shape):
    """Work orders of open alerts, the gravest first."""

    as_of: datetime
    items: list[WorkOrder]
