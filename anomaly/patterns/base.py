"""What an event pattern is: steps that follow each other in event time, within a span, while something does not happen.

A rule is data. Conditions speak of signals of the catalogue in its units; a moment is one second of one device. A
condition over a signal that was not measured (nor is held) is undecided: it holds not, and it neither begins nor ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from anomaly.accumulate import Accumulator
from anomaly.deployment import Deployment
from anomaly.detectors.sequence import Rule, Sequence, Span, Step, Term, When
from anomaly.patterns.signals import Named
from contracts.finding import Severity

__all__ = ["When", "above", "begins", "below", "deployed", "holds", "rises", "within"]


@dataclass(frozen=True, slots=True)
class Said:
    """A condition of one signal, by name."""

    named: Named
    term: Term


@dataclass(frozen=True, slots=True)
class Follows:
    """One step of a rule; ``fresh``: it has to begin, not only to hold."""

    all_of: tuple[Said, ...]
    fresh: bool


def above(named: Named, low: float) -> Said:
    """At or above ``low``, in the signal's unit."""
    return Said(named, Term(0, low=low))


def below(named: Named, high: float) -> Said:
    """At or below ``high``, in the signal's unit."""
    return Said(named, Term(0, high=high))


def within(named: Named, low: float, high: float) -> Said:
    """From ``low`` to ``high``, both inclusive."""
    return Said(named, Term(0, low=low, high=high))


def rises(named: Named, by: float, over_ms: int) -> Said:
    """At least ``by`` units above its lowest value of the last ``over_ms`` (``sequence.Span`` says how exactly)."""
    return Said(named, Term(0, rise=Span(by, over_ms)))


def begins(*all_of: Said) -> Follows:
    """All of these hold, and were seen not to a moment before."""
    return Follows(all_of, True)


def holds(*all_of: Said) -> Follows:
    """All of these hold."""
    return Follows(all_of, False)


def deployed(
    name: str, steps: tuple[Follows, ...], within_ms: int, *, kinds: tuple[str, ...], cause: str, advice: str,
    severity: Severity, hold_ms: int, without: tuple[Said, ...] = (),
) -> Deployment:  # fmt: skip
    """A rule as a deployment: one excursion per match. ``without``: any of these takes back what had begun.

    ``hold_ms``: how long a signal that is measured less often counts as it was.
    """
    used = [said for step in steps for said in step.all_of] + list(without)
    signals = tuple(dict.fromkeys(said.named.number for said in used))
    place = {number: column for column, number in enumerate(signals)}
    rule = Rule(
        tuple(Step(When(tuple(_placed(said, place) for said in step.all_of)), step.fresh) for step in steps),
        within_ms,
        tuple(When((_placed(said, place),)) for said in without),
    )
    return Deployment(
        name, Sequence(len(signals), rule), signals, kinds, cause, advice, severity,
        Accumulator(call_at=1, close_at=0, ceiling=1), awaits=tuple(range(len(signals))), hold_ms=hold_ms,
    )  # fmt: skip


def _placed(said: Said, place: dict[int, int]) -> Term:
    return Term(place[said.named.number], said.term.low, said.term.high, said.term.rise)
