"""One event as a record: what happened, and every element of its profile as recorded or as not available.

An element without a source is ``not_available``, never zero. A channel whose sensor reached its limit carries
``saturated_from_ms``; a value outside the table's range is clamped to it and the element says ``clamped``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from contracts.edr.cbor import Value
from contracts.edr.elements import Element
from contracts.edr.errors import RecordOutsideProfile
from contracts.edr.profiles import Profile

SCHEMA_VERSION: Final = 1

Source = Literal["oem_edr_download", "aftermarket_device", "simulated"]
Trigger = Literal["delta_v", "restraint", "vru", "sustained_deceleration", "last_stop"]
TimeZeroRule = Literal[
    "longitudinal_gate", "lateral_gate", "deployment", "trigger_interval", "deceleration_start", "standstill"
]

EVENT_PART: Final = "event"
MISSING_PART: Final = "not_available"
ATTACHMENTS_PART: Final = "attachments"
HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class ElementValue:
    """What was recorded for one element: integers in units of the profile's resolution (states: their index).

    A series' first value lies ``first`` steps of ``step_us`` after time zero (negative before it); a single value has
    ``step_us`` 0. None in a series means that the source had nothing fresh for that instant.
    """

    name: str
    values: tuple[int | None, ...]
    first: int = 0
    step_us: int = 0
    saturated_from_ms: int | None = None
    clamped: bool = False


@dataclass(frozen=True, slots=True)
class Attachment:
    """Data too large for the capsule, claimed by its hash; it travels in pieces (``wire.AttachmentPiece``)."""

    name: str
    sha256: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A finished event. Times are microseconds of the device's monotonic clock, or relative to time zero."""

    profile: str
    profile_version: int
    source: Source
    trigger: Trigger
    time_zero_rule: TimeZeroRule
    boot_epoch: int
    time_zero_us: int
    trigger_after_us: int
    end_after_us: int | None
    event_number: int
    since_previous_us: int | None
    ignition_cycle_crash: int
    locked: bool
    lock_reason: str
    acceleration_step_us: int
    complete: bool
    elements: tuple[ElementValue, ...]
    not_available: tuple[str, ...]
    attachments: tuple[Attachment, ...] = ()

    def value(self, name: str) -> ElementValue | None:
        """What was recorded for the element ``name``; None when it is not available."""
        return next((element for element in self.elements if element.name == name), None)


def check_record(record: EventRecord, profile: Profile) -> None:
    """Raises RecordOutsideProfile unless the record is exactly of the profile's shape and within its ranges."""
    if (record.profile, record.profile_version) != (profile.name, profile.version):
        raise RecordOutsideProfile(f"made for {record.profile} version {record.profile_version}, not {profile.name}")
    listed = sorted(element.name for element in profile.elements)
    carried = sorted([*(value.name for value in record.elements), *record.not_available])
    if listed != carried:
        odd = sorted(set(listed).symmetric_difference(carried)) or "an element twice"
        raise RecordOutsideProfile(f"elements missing, unknown or repeated: {odd}")
    for value in record.elements:
        _check_value(value, profile.element(value.name))


def _check_value(value: ElementValue, element: Element) -> None:
    series = element.kind in ("series", "state_series")
    if series != (value.step_us > 0) or (not series and len(value.values) != 1) or not value.values:
        raise RecordOutsideProfile(f"{value.name}: wrong number of values for {element.kind}")
    if series and element.from_ms is not None and element.to_ms is not None:
        first_us, last_us = value.first * value.step_us, (value.first + len(value.values) - 1) * value.step_us
        if first_us < element.from_ms * 1_000 or last_us > element.to_ms * 1_000:
            raise RecordOutsideProfile(f"{value.name}: samples outside {element.from_ms}..{element.to_ms} ms")
    if element.states:
        lowest, highest = 0, len(element.states) - 1
    else:
        lowest, highest = int(element.minimum / element.resolution), int(element.maximum / element.resolution)
    for steps in value.values:
        if steps is not None and not lowest <= steps <= highest:
            raise RecordOutsideProfile(f"{value.name}: {steps} lies outside {lowest}..{highest}")


def to_parts(record: EventRecord) -> list[tuple[str, Value]]:
    """The record as named parts: the event, one per recorded element, the names of those not available.

    Claims on attachments follow in a part of their own when there are any.
    """
    event: dict[str, Value] = {
        "profile": record.profile,
        "profile_version": record.profile_version,
        "source": record.source,
        "trigger": record.trigger,
        "time_zero_rule": record.time_zero_rule,
        "boot_epoch": record.boot_epoch,
        "time_zero_us": record.time_zero_us,
        "trigger_after_us": record.trigger_after_us,
        "end_after_us": record.end_after_us,
        "event_number": record.event_number,
        "since_previous_us": record.since_previous_us,
        "ignition_cycle_crash": record.ignition_cycle_crash,
        "locked": record.locked,
        "lock_reason": record.lock_reason,
        "acceleration_step_us": record.acceleration_step_us,
        "complete": record.complete,
    }
    parts: list[tuple[str, Value]] = [(EVENT_PART, event)]
    for value in record.elements:
        parts.append(
            (
                value.name,
                {
                    "name": value.name,
                    "values": list(value.values),
                    "first": value.first,
                    "step_us": value.step_us,
                    "saturated_from_ms": value.saturated_from_ms,
                    "clamped": value.clamped,
                },
            )
        )
    parts.append((MISSING_PART, list(record.not_available)))
    if record.attachments:
        claims: list[Value] = [[claim.name, claim.sha256, claim.size_bytes] for claim in record.attachments]
        parts.append((ATTACHMENTS_PART, claims))
    return parts


def from_parts(parts: Sequence[tuple[str, Value]]) -> EventRecord:
    """The record of these parts. Raises RecordOutsideProfile when a part has another shape."""
    attachments: tuple[Attachment, ...] = ()
    if parts and parts[-1][0] == ATTACHMENTS_PART:
        attachments = _attachments(parts[-1][1])
        parts = parts[:-1]
    if len(parts) < 2 or parts[0][0] != EVENT_PART or parts[-1][0] != MISSING_PART:
        raise RecordOutsideProfile("the parts are not: event, elements, not_available")
    elements = tuple(_element(name, _mapping(name, part)) for name, part in parts[1:-1])
    missing = parts[-1][1]
    if not isinstance(missing, list) or not all(isinstance(name, str) for name in missing):
        raise RecordOutsideProfile("not_available is not a list of names")
    return _event(_mapping(EVENT_PART, parts[0][1]), elements, tuple(cast("list[str]", missing)), attachments)


def _attachments(part: Value) -> tuple[Attachment, ...]:
    if not isinstance(part, list) or not part:
        raise RecordOutsideProfile("attachments is not a list of claims")
    claims = []
    for claim in part:
        if not isinstance(claim, list) or len(claim) != 3:
            raise RecordOutsideProfile("a claim is not name, hash and size")
        name, sha256, size_bytes = claim
        sound = isinstance(name, str) and isinstance(sha256, bytes) and type(size_bytes) is int
        if not sound or len(cast("bytes", sha256)) != HASH_BYTES or cast("int", size_bytes) < 1:
            raise RecordOutsideProfile("a claim is not name, hash and size")
        claims.append(Attachment(cast("str", name), cast("bytes", sha256), cast("int", size_bytes)))
    return tuple(claims)


def _event(
    event: Mapping[str, Value],
    elements: tuple[ElementValue, ...],
    missing: tuple[str, ...],
    attachments: tuple[Attachment, ...],
) -> EventRecord:
    _exact_keys(EVENT_PART, event, set(EventRecord.__slots__) - {"elements", "not_available", "attachments"})
    return EventRecord(
        profile=_text(event, "profile"),
        profile_version=_int(event, "profile_version"),
        source=cast(Source, _choice(event, "source", get_args(Source))),
        trigger=cast(Trigger, _choice(event, "trigger", get_args(Trigger))),
        time_zero_rule=cast(TimeZeroRule, _choice(event, "time_zero_rule", get_args(TimeZeroRule))),
        boot_epoch=_int(event, "boot_epoch"),
        time_zero_us=_int(event, "time_zero_us"),
        trigger_after_us=_int(event, "trigger_after_us"),
        end_after_us=_optional_int(event, "end_after_us"),
        event_number=_int(event, "event_number"),
        since_previous_us=_optional_int(event, "since_previous_us"),
        ignition_cycle_crash=_int(event, "ignition_cycle_crash"),
        locked=_bool(event, "locked"),
        lock_reason=_text(event, "lock_reason"),
        acceleration_step_us=_int(event, "acceleration_step_us"),
        complete=_bool(event, "complete"),
        elements=elements,
        not_available=missing,
        attachments=attachments,
    )


def _element(part_name: str, part: Mapping[str, Value]) -> ElementValue:
    _exact_keys(part_name, part, set(ElementValue.__slots__))
    values = part["values"]
    if not isinstance(values, list) or not all(item is None or type(item) is int for item in values):
        raise RecordOutsideProfile(f"{part_name}: values are not integers")
    if _text(part, "name") != part_name:
        raise RecordOutsideProfile(f"{part_name}: the part names another element")
    return ElementValue(
        name=part_name,
        values=tuple(cast("list[int | None]", values)),
        first=_int(part, "first"),
        step_us=_int(part, "step_us"),
        saturated_from_ms=_optional_int(part, "saturated_from_ms"),
        clamped=_bool(part, "clamped"),
    )


def _mapping(name: str, part: Value) -> Mapping[str, Value]:
    if not isinstance(part, Mapping):
        raise RecordOutsideProfile(f"{name}: not a map")
    return part


def _exact_keys(name: str, part: Mapping[str, Value], wanted: Iterable[str]) -> None:
    if set(part) != set(wanted):
        raise RecordOutsideProfile(f"{name}: keys {sorted(set(part).symmetric_difference(wanted))}")


def _int(part: Mapping[str, Value], key: str) -> int:
    value = part[key]
    if type(value) is not int:
        raise RecordOutsideProfile(f"{key} is not an integer")
    return value


def _optional_int(part: Mapping[str, Value], key: str) -> int | None:
    return None if part[key] is None else _int(part, key)


def _text(part: Mapping[str, Value], key: str) -> str:
    value = part[key]
    if not isinstance(value, str):
        raise RecordOutsideProfile(f"{key} is not text")
    return value


def _bool(part: Mapping[str, Value], key: str) -> bool:
    value = part[key]
    if not isinstance(value, bool):
        raise RecordOutsideProfile(f"{key} is not true or false")
    return value


def _choice(part: Mapping[str, Value], key: str, allowed: tuple[str, ...]) -> str:
    value = _text(part, key)
    if value not in allowed:
        raise RecordOutsideProfile(f"{key} {value!r} is none of {allowed}")
    return value
