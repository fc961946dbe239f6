"""One row of a profile: a data element with its interval, rate, range, accuracy and resolution.

Physical values travel as integers in units of the row's resolution; this module is the only place that turns one into
the other. What lies outside the reporting range is clamped to it and said so by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, get_args

from contracts.edr.errors import BadProfile

Kind = Literal["series", "state_series", "scalar", "time", "state"]
Presence = Literal["required", "if_recorded", "if_fitted"]
Mark = Literal["confirmed", "corroborated", "unsure"]
AccuracyKind = Literal["absolute", "percent", "percent_of_range", "none"]

_KEYS: Final = frozenset(
    "name title kind feed table presence condition unit from_ms to_ms until rate_hz min max resolution accuracy states"
    " events mark note".split()
)
_FEEDS: Final = frozenset(
    "delta_v max_delta_v time_max_delta_v acceleration pre_acceleration saturated channel restraint flag counter"
    " event".split()
)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a reported value may be from the true one: in the unit, in % of the value or in % of the range."""

    kind: AccuracyKind
    value: Decimal

    def tolerance(self, true_value: float, full_range: float) -> float:
        """The permitted distance from ``true_value``, in the element's unit."""
        amount = float(self.value)
        if self.kind == "percent":
            return abs(true_value) * amount / 100
        if self.kind == "percent_of_range":
            return full_range * amount / 100
        return amount


@dataclass(frozen=True, slots=True)
class Element:
    """One data element as its table lists it. ``feed`` names what the recorder fills it from."""

    name: str
    title: str
    kind: Kind
    feed: str
    table: str
    presence: Presence
    mark: Mark
    condition: str
    unit: str
    from_ms: int | None
    to_ms: int | None
    ends_with_event: bool
    rate_hz: int | None
    minimum: Decimal
    maximum: Decimal
    resolution: Decimal
    accuracy: Accuracy
    states: tuple[str, ...]
    events: str
    note: str

    @property
    def full_range(self) -> float:
        """The larger side of the reporting range, in the unit: what "% of range" refers to."""
        return float(max(abs(self.minimum), abs(self.maximum)))

    @property
    def step_us(self) -> int:
        """Microseconds between samples; 0 for what is not a series."""
        return 1_000_000 // self.rate_hz if self.rate_hz else 0

    def to_steps(self, value: float) -> int:
        """``value`` (in the unit) as a whole number of resolutions, clamped to the reporting range.

        Raises ValueError for what is no number (NaN): it lies nowhere in the range, and nothing may be made up for it.
        """
        if math.isnan(value):
            raise ValueError(f"{self.name}: NaN cannot be recorded")
        lowest = int(self.minimum / self.resolution)
        highest = int(self.maximum / self.resolution)
        return round(min(highest, max(lowest, value / float(self.resolution))))

    def from_steps(self, steps: int) -> float:
        """The physical value, in the unit, that ``steps`` stands for."""
        return float(steps * self.resolution)

    def to_state(self, state: str) -> int:
        """The number under which a state is recorded. Raises KeyError for a state that the table does not list."""
        if state not in self.states:
            raise KeyError(f"{self.name} has no state {state!r}: {', '.join(self.states)}")
        return self.states.index(state)


def parse_element(row: Mapping[str, Any], where: str) -> Element:
    """One ``[[element]]`` table of a profile file, checked. Raises BadProfile naming ``where``, element and key."""
    name = row.get("name", "?")
    here = f"{where}: element {name}"
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise BadProfile(f"{here}: unknown keys {unknown}")
    accuracy = row.get("accuracy", {"kind": "none", "value": "0"})
    try:
        element = Element(
            name=row["name"],
            title=row["title"],
            kind=_one_of(row["kind"], get_args(Kind)),
            feed=row["feed"],
            table=row["table"],
            presence=_one_of(row["presence"], get_args(Presence)),
            mark=_one_of(row["mark"], get_args(Mark)),
            condition=row.get("condition", ""),
            unit=row.get("unit", ""),
            from_ms=row.get("from_ms"),
            to_ms=row.get("to_ms"),
            ends_with_event=_one_of(row.get("until", "fixed"), ("fixed", "event_end")) == "event_end",
            rate_hz=row.get("rate_hz"),
            minimum=Decimal(row.get("min", "0")),
            maximum=Decimal(row.get("max", "0")),
            resolution=Decimal(row.get("resolution", "1")),
            accuracy=Accuracy(_one_of(accuracy["kind"], get_args(AccuracyKind)), Decimal(accuracy["value"])),
            states=tuple(row.get("states", ())),
            events=row.get("events", "PVR"),
            note=row.get("note", ""),
        )
    except (KeyError, ValueError, TypeError, InvalidOperation) as bad:
        raise BadProfile(f"{here}: {bad!r}") from bad
    _check(element, here)
    return element


def _one_of(value: Any, allowed: tuple[str, ...]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} is none of {allowed}")
    return value


def _check(element: Element, here: str) -> None:
    series = element.kind in ("series", "state_series")
    stateful = element.kind in ("state", "state_series")
    interval = element.from_ms is not None and element.to_ms is not None
    rules = {
        "a series needs from_ms, to_ms and rate_hz": not series or (interval and bool(element.rate_hz)),
        "only a series has a rate": series or element.rate_hz is None,
        "the rate must divide one second into whole microseconds": not series
        or 1_000_000 % (element.rate_hz or 7) == 0,
        "from_ms lies after to_ms": not interval or (element.from_ms or 0) <= (element.to_ms or 0),
        "states are missing or do not belong here": stateful == bool(element.states),
        "a state is listed twice": len(set(element.states)) == len(element.states),
        "a number needs a unit": stateful or bool(element.unit),
        "min must be below max": stateful or element.minimum < element.maximum,
        "resolution must be above zero": element.resolution > 0,
        "the feed is unknown": element.feed.split(":")[0] in _FEEDS and ":" in element.feed,
        "events are letters of P, V, R": bool(element.events) and set(element.events) <= set("PVR"),
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise BadProfile(f"{here}: {'; '.join(broken)}")
