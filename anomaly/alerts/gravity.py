"""How grave an alert is: what the detector says, moved by how critical the asset is and what a wrong guess costs.

The cost rule is the Bayes threshold of the cost ratio: going there pays when the chance that something is wrong, times
what a day of waiting costs, outweighs the visit. It moves a severity by one step at most, and criticality by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from contracts.finding import Severity

PRIOR_TRUE: Final = 1.0
PRIOR_FALSE: Final = 1.0
"""A detector that nobody has judged yet is believed half (Laplace's rule of succession)."""

PAYS_AT_ONCE: Final = 10.0
"""Expected loss per day over the price of a visit: from here on an alert is one step graver."""

HARDLY_PAYS: Final = 0.1
"""Below this it is one step less grave."""


class Criticality(IntEnum):
    """What stops when the asset stops: nothing of note, its own work, other people's work or safety."""

    MINOR = 0
    NORMAL = 1
    VITAL = 2


@dataclass(frozen=True, slots=True)
class Stake:
    """What is at stake with an asset, in any one currency; None: nobody has said, so cost moves nothing."""

    criticality: Criticality = Criticality.NORMAL
    downtime_cost_per_day: float | None = None
    visit_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """How often a detector was right, wrong, or neither, as people resolved its alerts."""

    confirmed: int = 0
    wrong: int = 0
    unclear: int = 0

    @property
    def sureness(self) -> float:
        """Chance that its next alert is right; between 0 and 1."""
        return (self.confirmed + PRIOR_TRUE) / (self.confirmed + self.wrong + PRIOR_TRUE + PRIOR_FALSE)


def grade(told: Severity, stake: Stake, sureness: float) -> Severity:
    """The severity that people see. What a detector calls critical never falls below an alarm."""
    step = int(stake.criticality) - int(Criticality.NORMAL) + _cost_step(stake, sureness)
    floor = Severity.ALARM if told is Severity.CRITICAL else Severity.NOTE
    return Severity(min(max(int(told) + step, int(floor)), int(Severity.CRITICAL)))


def _cost_step(stake: Stake, sureness: float) -> int:
    if stake.downtime_cost_per_day is None or stake.visit_cost is None or stake.visit_cost <= 0:
        return 0
    ratio = sureness * stake.downtime_cost_per_day / stake.visit_cost
    return 1 if ratio >= PAYS_AT_ONCE else -1 if ratio < HARDLY_PAYS else 0
