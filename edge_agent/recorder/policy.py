"""What a record's slot may be used for again: lock rules by profile, and which record gives way. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from contracts.edr.profiles import Profile
from edge_agent.recorder.detector import Event


class Held(Protocol):
    """A record in the file, as the policy sees it."""

    @property
    def record_no(self) -> int: ...
    @property
    def locked(self) -> bool: ...


HeldT = TypeVar("HeldT", bound=Held)


def lock_reason(
    profile: Profile,
    event: Event,
    restraints: Mapping[str, int],
    vru_names: Collection[str],
    frontal_restraint: bool,
    record_lateral: bool,
) -> str:
    """Why this event must never be overwritten; empty when it may be."""
    rule = profile.lock
    prefixes = rule.restraint_prefixes + (rule.restraint_prefixes_with_lateral if record_lateral else ())
    if any(name.startswith(prefixes) for name in restraints if name not in vru_names):
        return "restraint"
    if rule.vru and any(name in vru_names for name in restraints):
        return "vru"
    counts = rule.delta_v is not None and not (rule.only_without_frontal_restraint and frontal_restraint)
    if counts and event.fast_change:
        return "delta_v"
    return ""


def gives_way(held: Sequence[HeldT], capacity: int) -> HeldT | None:
    """The record that a new one replaces: the oldest that is not locked; None while there is room.

    Raises LookupError when every place is taken by a locked record: the new one cannot be kept.
    """
    if len(held) < capacity:
        return None
    free = [record for record in held if not record.locked]
    if not free:
        raise LookupError("every place holds a locked record")
    return min(free, key=lambda record: record.record_no)
