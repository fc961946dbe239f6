"""What will go wrong and when: drawn from a seed, before anything runs. Pure; the same numbers give the same plan.

Half of the faults start whenever they like, on top of each other (the storm); the other half one by one, each only
when nothing is left to be stored, so that what it costs to recover can be measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

SERVICES = ("mosquitto", "gateway", "gateway-1", "kafka", "ingest", "archive", "watch", "evidence", "api", "postgres")
FLEETS = ("fleet-0", "fleet-1", "fleet-2", "noisy", "twin")
STORM_SHARE = 0.6
"""Part of the run's time over which the storm is spread."""
SECONDS_PER_FAULT = 8.0
"""One fault that is not a plain kill for this much of the run's time, at least LEAST_OTHERS."""
LEAST_OTHERS = 4
MOST_AT_ONCE = 6
"""Victims of one kill that waits for lag 0: several parts may die at the same moment."""
LONG_RUN_S = 240.0
"""A run as long as this holds its faults for their full time; a shorter one for its share of it."""
LEAST_SCALE = 0.2
KILL = "kill"
VICTIMS = (
    "gateway", "gateway", "gateway", "gateway-1", "gateway-1", "gateway-1", "mosquitto", "mosquitto", "mosquitto",
    "fleet-0", "fleet-0", "fleet-0", "fleet-1", "fleet-1", "fleet-1", "fleet-2", "fleet-2", "fleet-2", "noisy", "noisy",
    "twin", "twin", "postgres", "postgres", "kafka", "kafka", "archive", "watch", "evidence", "api", "ingest", "jvm",
)  # fmt: skip
"""Who may be killed, as often as he stands here: Spark least, since its start takes longest.

``jvm`` is Spark's alone: its Python driver lives on."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a fault draws for itself: whom it hits, how long at full scale, one number of its own."""

    targets: tuple[str, ...]
    hold_s: float = 0.0
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a plan. ``at_s`` counts from the storm's begin; a drained step starts when lag is 0 instead."""

    fault: str
    drained: bool
    at_s: float
    targets: tuple[str, ...]
    hold_s: float
    value: float

    def line(self) -> str:
        """For people."""
        when = "when lag is 0 " if self.drained else f"at {self.at_s:8.1f} s"
        held = f" for {self.hold_s:.1f} s" if self.hold_s else ""
        return f"{when}  {self.fault:16} {', '.join(self.targets)}{held} ({self.value:.3g})"


class Drawable(Protocol):
    """As much of a fault as a plan needs."""

    @property
    def name(self) -> str: ...

    def draw(self, chance: random.Random) -> Shape: ...


def draw_plan(seed: int, seconds: float, kills: int, menu: Iterable[Drawable]) -> tuple[Step, ...]:
    """Exactly ``kills`` SIGKILLs, and other faults from the menu in proportion to ``seconds``; storm first."""
    chance = random.Random(f"torture {seed}")
    scale = max(LEAST_SCALE, min(1.0, seconds / LONG_RUN_S))
    others = _others(chance, [fault for fault in menu if fault.name != KILL], seconds)
    storm_kills = kills // 2
    storm = [Shape((chance.choice(VICTIMS),)) for _ in range(storm_kills)]
    calm = _groups(chance, kills - storm_kills)
    half = len(others) // 2
    begun = [_step(KILL, shape, scale, chance.uniform(0, STORM_SHARE * seconds)) for shape in storm]
    begun += [_step(name, shape, scale, chance.uniform(0, STORM_SHARE * seconds)) for name, shape in others[:half]]
    waiting = [_step(KILL, shape, scale) for shape in calm]
    waiting += [_step(name, shape, scale) for name, shape in others[half:]]
    chance.shuffle(waiting)
    return (*sorted(begun, key=lambda step: step.at_s), *waiting)


def kills_of(plan: Sequence[Step]) -> int:
    """SIGKILLs that a plan asks for."""
    return sum(len(step.targets) for step in plan if step.fault == KILL)


def _others(chance: random.Random, menu: list[Drawable], seconds: float) -> list[tuple[str, Shape]]:
    """Shuffled rounds through the menu, so that no kind is drawn twice before every kind was drawn once."""
    wanted = max(LEAST_OTHERS, int(seconds / SECONDS_PER_FAULT))
    drawn: list[tuple[str, Shape]] = []
    while len(drawn) < wanted:
        round_ = chance.sample(menu, len(menu))
        drawn += [(fault.name, fault.draw(chance)) for fault in round_[: wanted - len(drawn)]]
    return drawn


def _groups(chance: random.Random, kills: int) -> list[Shape]:
    """Victims that die together, all different within a group."""
    groups: list[Shape] = []
    while kills > 0:
        victims = dict.fromkeys(chance.choices(VICTIMS, k=min(kills, chance.randint(1, MOST_AT_ONCE))))
        if "ingest" in victims:
            victims.pop("jvm", None)
        groups.append(Shape(tuple(victims)))
        kills -= len(victims)
    return groups


def _step(fault: str, shape: Shape, scale: float, at_s: float | None = None) -> Step:
    hold_s = round(shape.hold_s * scale, 3)
    return Step(fault, at_s is None, round(at_s or 0.0, 3), shape.targets, hold_s, shape.value)
