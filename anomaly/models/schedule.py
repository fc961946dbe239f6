"""Which model judges which event times, from the list of promotions and rollbacks.

A change says from which event time on it holds. Made now, that is ``LEAD_MS`` ahead: no reading of such a time is
believed yet (``contracts.limits.MAX_FUTURE_MS``), so none can have been judged by the model before it, and a replay
with the whole schedule finds what was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anomaly.deployment import FOREVER, Deployment
from anomaly.models.file import Model
from contracts.limits import MAX_FUTURE_MS

LEAD_MS: Final = MAX_FUTURE_MS + 60_000
"""A minute more for clocks of gateways that run ahead of the database's."""
MOST_GENERATIONS: Final = 8
"""Per recipe, newest first: what older ones said stays said, a run that begins anew no longer repeats it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One promotion or rollback; ``model`` None: nothing judges from then on. ``replaced`` was live before it."""

    change_id: int
    name: str
    model: str | None
    replaced: str | None
    effective_ms: int
    rolled_back: bool = False
    anew: bool = False
    """It holds for times that may have been judged already: detection begins anew."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A model's time: event times from ``since_ms`` on and before ``until_ms``."""

    name: str
    model: str
    since_ms: int
    until_ms: int


def generations(changes: Sequence[Change]) -> tuple[Generation, ...]:
    """By name and time; ``changes`` in the order in which they were made."""
    found: list[Generation] = []
    for name in sorted({one.name for one in changes}):
        mine = [one for one in changes if one.name == name]
        ends = [one.effective_ms for one in mine[1:]] + [FOREVER]
        made = [
            Generation(name, one.model, one.effective_ms, end)
            for one, end in zip(mine, ends, strict=True)
            if one.model is not None and one.effective_ms < end
        ]
        found += made[-MOST_GENERATIONS:]
    return tuple(found)


def before(changes: Sequence[Change]) -> str | None:
    """What a rollback brings back; ``changes`` are of one name. A rollback after a rollback goes one further back."""
    held: list[str | None] = [None]
    for one in changes:
        if one.rolled_back:
            held.pop()
        else:
            held.append(one.model)
    return held[-2] if len(held) > 1 else None


def era(changes: Sequence[Change]) -> int:
    """Number of the last change for which detection begins anew; 0: none."""
    return max((one.change_id for one in changes if one.anew), default=0)


def deployments(schedule: Sequence[Generation], models: Mapping[str, Model]) -> tuple[Deployment, ...]:
    """Each generation's detector, and the watch over its inputs; generations without a readable model are left out."""
    made: list[Deployment] = []
    for one in schedule:
        model = models.get(one.model)
        if model is not None and model.recipe == one.name:
            made.append(model.deployment(one.model, one.since_ms, one.until_ms))
            made.append(model.watcher(one.model, one.since_ms, one.until_ms))
    return tuple(made)
