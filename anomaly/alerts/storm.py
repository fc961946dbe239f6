"""Many alerts of one root become one: the others are grouped under the first and disturb nobody.

Two roots are recognised: one asset on which several things go wrong at about the same time (a dead supply, a sensor
bus), and one cause that appears on many assets at about the same time (an update, the weather). Nothing critical and
nothing that somebody works on already is ever hidden behind another alert. A root is never grouped itself, so there
are no chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contracts.finding import Severity


@dataclass(frozen=True, slots=True)
class StormRule:
    """``window_ms``: what "about the same time" is, by when the excursions began. ``on_one_asset``: so many alerts of
    one asset are a storm. ``of_one_cause``: a cause on so many assets is one."""

    window_ms: int = 600_000
    on_one_asset: int = 3
    of_one_cause: int = 5


@dataclass(frozen=True, slots=True)
class Fresh:
    """An open alert as far as storms are concerned. ``asset``: any key of its asset, ``root``: whom it is grouped
    under, ``heads``: others are grouped under it, ``untouched``: nobody has taken notice of it."""

    alert_id: str
    asset: str
    cause: str
    since_ms: int
    severity: Severity
    root: str | None = None
    heads: bool = False
    untouched: bool = True


@dataclass(frozen=True, slots=True)
class Storm:
    """``root`` stays; ``members`` are to be grouped under it."""

    root: str
    members: tuple[str, ...]


def storm_of(newest: Fresh, others: Sequence[Fresh], rule: StormRule) -> Storm | None:
    """The storm that a new alert belongs to; None: it stands for itself."""
    near = [one for one in others if abs(one.since_ms - newest.since_ms) <= rule.window_ms]
    of_asset = [one for one in near if one.asset == newest.asset]
    if len(of_asset) + 1 >= rule.on_one_asset and (found := _storm([*of_asset, newest])):
        return found
    of_cause = [one for one in near if one.cause == newest.cause]
    if len({one.asset for one in of_cause} | {newest.asset}) >= rule.of_one_cause:
        return _storm([*of_cause, newest])
    return None


def _storm(alerts: Sequence[Fresh]) -> Storm | None:
    roots = sorted(
        (one for one in alerts if one.root is None), key=lambda one: (not one.heads, one.since_ms, one.alert_id)
    )
    if not roots:
        return None
    root = roots[0].alert_id
    members = tuple(one.alert_id for one in roots[1:] if _may_be_grouped(one))
    return Storm(root, members) if members else None


def _may_be_grouped(one: Fresh) -> bool:
    return one.severity is not Severity.CRITICAL and one.untouched and not one.heads
