"""Profiles: what each regulation asks of a crash record, as data (`regulations/*.toml`), loaded and checked.

A profile says when to trigger, where time zero lies, when an event ends, what is locked, how many events are kept and
which elements a record carries. What is marked ``unsure`` there is a setting of ours, not a quotation.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

from contracts.edr.elements import Element, Mark, parse_element
from contracts.edr.errors import BadProfile

PROFILE_NAMES: Final = ("part563-2012", "part563-2024", "un-r160", "gb-39732", "un-r169")
"""The menu: one file per name."""

Comparison = Literal["at_least", "more_than"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A velocity change within a window, and whether reaching it is enough."""

    threshold_kmh: float
    window_ms: int
    comparison: Comparison

    def met_by(self, change_kmh: float) -> bool:
        """Whether a change of this size counts."""
        if self.comparison == "at_least":
            return change_kmh >= self.threshold_kmh
        return change_kmh > self.threshold_kmh


@dataclass(frozen=True, slots=True)
class SustainedDeceleration:
    """Heavy duty: deceleration above ``threshold_mps2`` for ``hold_ms``, from speed differentiated over ``span_ms``.

    Speed readings further apart than ``max_gap_ms`` say nothing about it: the watch starts anew.
    """

    threshold_mps2: float
    hold_ms: int
    span_ms: int
    max_gap_ms: int


@dataclass(frozen=True, slots=True)
class LastStop:
    """Heavy duty: standing at or below ``speed_kmh`` for ``hold_ms`` after having been at least ``moved_kmh`` fast."""

    speed_kmh: float
    hold_ms: int
    moved_kmh: float


@dataclass(frozen=True, slots=True)
class LockRule:
    """What makes a record never to be overwritten; a restraint counts when its name begins with a prefix ("": any)."""

    restraint_prefixes: tuple[str, ...]
    restraint_prefixes_with_lateral: tuple[str, ...]
    vru: bool
    delta_v: Threshold | None
    only_without_frontal_restraint: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """One regulation's rules and elements; ``sha256`` is that of the file's bytes and goes into every capsule."""

    name: str
    version: int
    title: str
    status: str
    vehicles: str
    mark: Mark
    linkage_only: tuple[str, ...]
    trigger: Threshold
    lateral_trigger: bool
    vru_trigger: bool
    sustained_deceleration: SustainedDeceleration | None
    last_stop: LastStop | None
    gate_longitudinal: Threshold
    gate_lateral: Threshold
    event_end: Threshold
    multi_event_window_ms: int
    max_events: int
    lock: LockRule
    capacity_events: int
    phase_in: tuple[tuple[date, int, str], ...]
    elements: tuple[Element, ...]
    sha256: bytes

    def element(self, name: str) -> Element:
        """The row called ``name``. Raises KeyError when this profile has none."""
        for element in self.elements:
            if element.name == name:
                return element
        raise KeyError(f"profile {self.name} lists no element {name!r}")


@cache
def load_profile(name: str) -> Profile:
    """The profile called ``name``. Raises BadProfile for an unknown name or a file that breaks the rules."""
    if name not in PROFILE_NAMES:
        raise BadProfile(f"no profile {name!r}; there are: {', '.join(PROFILE_NAMES)}")
    data = resources.files("contracts.edr.regulations").joinpath(f"{name}.toml").read_bytes()
    return parse_profile(data, name)


def parse_profile(data: bytes, where: str) -> Profile:
    """A profile from its TOML bytes. Raises BadProfile that names ``where`` and the key."""
    try:
        table = tomllib.loads(data.decode("utf-8"))
        profile = _build(table, where, hashlib.sha256(data).digest())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, InvalidOperation) as bad:
        raise BadProfile(f"profile {where}: {bad!r}") from bad
    names = [element.name for element in profile.elements]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        raise BadProfile(f"profile {where}: elements listed twice or none at all: {twice}")
    if profile.capacity_events < 1 or profile.max_events < 1 or profile.name != where:
        raise BadProfile(f"profile {where}: capacity, max_events or name is wrong")
    return profile


def _build(table: Mapping[str, Any], where: str, sha256: bytes) -> Profile:
    trigger, zero, end = table["trigger"], table["time_zero"], table["event_end"]
    if not trigger["restraint"]["non_reversible"]:
        raise ValueError("every regulation read makes a non-reversible restraint a trigger")
    if table["capacity"]["overwrite"] != "oldest_unlocked":
        raise ValueError("the only overwrite policy is oldest_unlocked")
    return Profile(
        name=table["name"],
        version=int(table["version"]),
        title=table["title"],
        status=table["status"],
        vehicles=table["vehicles"],
        mark=table["mark"],
        linkage_only=tuple(table["linkage_only"]),
        trigger=_threshold(trigger["delta_v"], "window_ms"),
        lateral_trigger=bool(trigger["delta_v"]["lateral"]),
        vru_trigger=bool(trigger["restraint"]["vru"]),
        sustained_deceleration=_sustained(trigger.get("sustained_deceleration")),
        last_stop=_last_stop(trigger.get("last_stop")),
        gate_longitudinal=_threshold(zero, "longitudinal_window_ms"),
        gate_lateral=_threshold(zero, "lateral_window_ms"),
        event_end=_threshold(end, "window_ms"),
        multi_event_window_ms=int(table["multi_event"]["window_ms"]),
        max_events=int(table["multi_event"]["max_events"]),
        lock=_lock(table["lock"]),
        capacity_events=int(table["capacity"]["events"]),
        phase_in=tuple((row["from"], int(row["share_percent"]), row["who"]) for row in table.get("phase_in", ())),
        elements=tuple(parse_element(row, where) for row in table["element"]),
        sha256=sha256,
    )


def _threshold(row: Mapping[str, Any], window_key: str) -> Threshold:
    comparison = row.get("comparison", "more_than")
    if comparison not in ("at_least", "more_than"):
        raise ValueError(f"comparison {comparison!r}")
    threshold = float(Decimal(row["threshold_kmh"]))
    window_ms = int(row[window_key])
    if threshold <= 0 or window_ms <= 0:
        raise ValueError("a threshold and its window are above zero")
    return Threshold(threshold, window_ms, comparison)


def _sustained(row: Mapping[str, Any] | None) -> SustainedDeceleration | None:
    if row is None:
        return None
    threshold_mps2 = float(Decimal(row["threshold_mps2"]))
    rule = SustainedDeceleration(threshold_mps2, int(row["hold_ms"]), int(row["span_ms"]), int(row["max_gap_ms"]))
    if threshold_mps2 <= 0 or min(rule.hold_ms, rule.span_ms) <= 0 or rule.max_gap_ms < rule.span_ms:
        raise ValueError("a deceleration and its times are above zero, and a gap is not shorter than the span")
    return rule


def _last_stop(row: Mapping[str, Any] | None) -> LastStop | None:
    if row is None:
        return None
    rule = LastStop(float(Decimal(row["speed_kmh"])), int(row["hold_ms"]), float(Decimal(row["moved_kmh"])))
    if rule.hold_ms <= 0 or rule.moved_kmh <= rule.speed_kmh:
        raise ValueError("a stop lasts, and moving is faster than standing")
    return rule


def _lock(row: Mapping[str, Any]) -> LockRule:
    delta_v = None
    if "delta_v_kmh" in row:
        delta_v = _threshold({**row, "threshold_kmh": row["delta_v_kmh"], "comparison": row["comparison"]}, "window_ms")
    return LockRule(
        restraint_prefixes=tuple(row["restraint_prefixes"]),
        restraint_prefixes_with_lateral=tuple(row.get("restraint_prefixes_with_lateral", ())),
        vru=bool(row["vru"]),
        delta_v=delta_v,
        only_without_frontal_restraint=bool(row.get("only_without_frontal_restraint", False)),
    )
