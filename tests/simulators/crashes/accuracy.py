"""How near the recorder comes to the truth, element by element: ``docs/edr-accuracy.md`` is made by this.

    python -m tests.simulators.crashes.accuracy --write

Every profile records every simulated crash, on a sensor that is noisy, offset and askew and on one that saturates; each
recorded value is compared with the closed form of its pulse. The page tells the worst value of each element against
what its table permits. Exit code 1 when an element is outside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from contracts.edr.elements import Element
from contracts.edr.profiles import PROFILE_NAMES, Profile, load_profile
from simulators.crashes.play import ASKEW, SHORT, play
from simulators.crashes.scenarios import END_S, SCENARIOS
from simulators.crashes.sensor import Reading, readings
from simulators.crashes.truth import TrueEvent, numbers, true_events
from tests.simulators.crashes.agreement import Comparison

PAGE = Path(__file__).parents[3] / "docs" / "edr-accuracy.md"
SENSORS = {"askew": replace(ASKEW, offset_mps2=(0.25, -0.2, 0.15)), "saturating": SHORT}
SEEDS = {"askew": (11, 6), "saturating": (8,)}
CRASHES = [name for name, scenario in SCENARIOS.items() if scenario.crash]
HEAD = """# How near the crash records come to the truth

Made by `python -m tests.simulators.crashes.accuracy --write`. Simulated crashes; truth from the pulses' closed forms,
by code that the recorder does not share. Sensors: *askew* (turned by 6°, −9° and 32°, noise of 0.3 m/s², offset; two
seeds of noise) and *saturating* (limit of 16 g), both for every profile. The worst value of each element stands beside
what its table permits there (accuracy plus half a step of resolution); pre-crash samples are asynchronous and may stand
for an instant 0.1 s away. What a table marks *unsure* is a setting of ours. Values after saturation carry
`saturated_from_ms` instead. Accelerations have passed the class 60 filter and are judged against the truth's range
within 6 ms and 10 % of ringing, of which 2 % are left at 12 ms.
"Time zero" is that of impacts; the heavy-duty profile dates the onset of braking from a speed of 10 Hz."""


@dataclass
class Worst:
    """The value of an element that used most of what it may be off by; errors in the element's unit."""

    element: Element
    values: int = 0
    error: float = 0.0
    allowed: float = 0.0
    where: str = ""

    @property
    def share(self) -> float:
        return self.error / self.allowed if self.allowed else 0.0

    def add(self, error: float, allowed: float, where: str) -> None:
        self.values += 1
        if not self.where or error * self.allowed > self.error * allowed:
            self.error, self.allowed, self.where = error, allowed, where


@dataclass(frozen=True)
class Measured(Comparison):
    """A comparison that writes down how near each value was, and goes on."""

    worst: dict[str, Worst] = field(default_factory=dict)
    setting: str = ""

    def note(self, element: Element, error: float, allowed: float) -> None:
        self.worst.setdefault(element.name, Worst(element)).add(error, allowed, self.setting)

    def _close(self, element: Element, steps: int | None, truth: float, what: str) -> None:
        assert steps is not None, f"{element.name} {what}: nothing recorded"
        allowed = element.accuracy.tolerance(truth, element.full_range) + float(element.resolution) / 2
        self.note(element, abs(element.from_steps(steps) - truth), allowed)

    def _within(self, element: Element, steps: int, low: float, high: float, what: str) -> None:
        slack, got = float(element.resolution) / 2, element.from_steps(steps)
        if got >= float(element.maximum) - slack or got <= float(element.minimum) + slack:
            super()._within(element, steps, low, high, what)  # clamped to the table's range: no distance to tell
            return
        nearest = low if abs(got - low) < abs(got - high) else high
        allowed = element.accuracy.tolerance(nearest, element.full_range) + slack
        self.note(element, max(low - got, got - high, 0.0), allowed)


@cache
def truth_of(scenario: str, profile: str) -> list[TrueEvent]:
    return true_events(SCENARIOS[scenario], load_profile(profile))


@cache
def stream_of(scenario: str, sensor: str, seed: int) -> tuple[Reading, ...]:
    """The same readings for every profile: making them costs more than recording them."""
    return tuple(readings(SCENARIOS[scenario], SENSORS[sensor], seed, END_S))


@dataclass
class Found:
    """What one profile's records came to; the largest errors of a time zero, of impacts and of brakings, in ms."""

    worst: dict[str, Worst] = field(default_factory=dict)
    records: int = 0
    impact_ms: float = 0.0
    braking_ms: float = 0.0


def measure(profile: Profile) -> Found:
    """Every crash, every sensor that the profile is tried on."""
    found = Found()
    seats = [(sensor, seed, name) for sensor, seeds in SEEDS.items() for seed in seeds for name in CRASHES]
    for sensor_name, seed, name in seats:
        sensor, scenario = SENSORS[sensor_name], SCENARIOS[name]
        expected, stream = truth_of(name, profile.name), stream_of(name, sensor_name, seed)
        held = sorted(
            (capsule.record for capsule in play(scenario, profile.name, seed, sensor, stream=stream).held),
            key=lambda record: record.time_zero_us,
        )
        assert [one.trigger for one in held] == [one.trigger for one in expected], f"{profile.name} {name}"
        places = numbers(expected, profile.multi_event_window_ms / 1_000)
        for record, event, place in zip(held, expected, places, strict=True):
            found.records += 1
            zero_s = record.time_zero_us / 1e6
            off_ms = abs(zero_s - event.time_zero_s) * 1_000
            if event.trigger == "sustained_deceleration":
                found.braking_ms = max(found.braking_ms, off_ms)
                event = replace(event, time_zero_s=zero_s)  # its own instants are judged from its own time zero
            else:
                found.impact_ms = max(found.impact_ms, off_ms)
            setting = f"{name}, {sensor_name}"
            comparison = Measured(scenario, sensor, profile, record, event, *place, found.worst, setting)
            for value in record.elements:
                comparison.check(value)
    return found


def page(profiles: tuple[str, ...]) -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    for name in profiles:
        found = measure(load_profile(name))
        yield ""
        yield f"## {name}"
        yield ""
        braking = f", the onset of braking within {found.braking_ms:.0f} ms" if found.braking_ms else ""
        yield f"{found.records} records; time zero within {found.impact_ms:.2f} ms (sampled every 2 ms){braking}."
        yield ""
        yield "| element | unit | accuracy | values | worst error | permitted | used | worst in |"
        yield "|---|---|---|---|---|---|---|---|"
        for one in sorted(found.worst.values(), key=lambda one: one.element.name):
            yield _row(one)


def _row(one: Worst) -> str:
    element = one.element
    unit = element.unit or "–"
    sign = {"absolute": "±{}", "percent": "±{} %", "percent_of_range": "±{} % of range", "none": "–"}
    accuracy = sign[element.accuracy.kind].format(element.accuracy.value)
    return (
        f"| {element.title} | {unit} | {accuracy} | {one.values} | {one.error:.3g} | {one.allowed:.3g} "
        f"| {one.share:.0%} | {one.where} |"
    )


def outside(text: str) -> list[str]:
    """Rows that used more than they may."""
    rows = [line for line in text.splitlines() if line.count("|") == 9 and "%" in line]
    return [row for row in rows if int(row.split("|")[-3].strip().rstrip("%")) > 100]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulators.crashes.accuracy", description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew docs/edr-accuracy.md")
    parser.add_argument("--profile", action="append", choices=PROFILE_NAMES)
    asked = parser.parse_args()
    text = "\n".join([*page(tuple(asked.profile or PROFILE_NAMES)), ""])
    if asked.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 1 if outside(text) else 0


if __name__ == "__main__":
    sys.exit(main())
