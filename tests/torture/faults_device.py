"""Faults of devices: wrong clocks, disorder, copies, clones, one gone wild, bad input, an upgrade at a bad moment."""

from __future__ import annotations

import random
import time

from tests.torture.arena import Arena
from tests.torture.fleet import wait_until
from tests.torture.plan import Shape, Step
from tests.torture.poison import make_poison
from tests.torture.proxy import Weather

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
JUMPS_MS = (HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS)
PLAIN = ("fleet-0", "fleet-1", "fleet-2")
WILD = 1_000
DRAIN_S = 60.0
FULL_RATE = 1_000
"""Overflows the spools of fleet-1 within the shortest time that is drawn."""


class ClockJump:
    """The devices' clock jumps by an hour or a year, forth or back, and is set right again."""

    name = "clock_jump"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(PLAIN),), chance.uniform(4, 20), chance.choice(JUMPS_MS))

    def strike(self, arena: Arena, step: Step) -> None:
        fleet = arena.fleets[step.targets[0]]
        fleet.order(clock_ms=int(step.value))
        arena.stop.wait(step.hold_s)
        fleet.order(clock_ms=0)


class Boot1970:
    """The devices boot without a clock, learn the time while they run, and boot once more."""

    name = "boot_1970"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(PLAIN),), chance.uniform(4, 20), chance.randint(1_000, 100_000))

    def strike(self, arena: Arena, step: Step) -> None:
        fleet = arena.fleets[step.targets[0]]
        fleet.stop()
        fleet.start(clock_ms=int(step.value) - int(time.time() * 1_000))
        arena.stop.wait(step.hold_s)
        fleet.order(clock_ms=0)
        arena.stop.wait(step.hold_s / 4)
        fleet.stop()
        fleet.start()


class Unruly:
    """Readings come shuffled, held back, in late batches and twice."""

    name = "unruly"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(PLAIN),), chance.uniform(5, 30))

    def strike(self, arena: Arena, step: Step) -> None:
        fleet = arena.fleets[step.targets[0]]
        fleet.order(unruly=True)
        arena.stop.wait(step.hold_s)
        fleet.order(unruly=False)


class HoursLate:
    """What is measured now carries stamps of hours ago."""

    name = "hours_late"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(PLAIN),), chance.uniform(5, 30), chance.uniform(1, 40) * HOUR_MS)

    def strike(self, arena: Arena, step: Step) -> None:
        fleet = arena.fleets[step.targets[0]]
        fleet.order(late_ms=int(step.value))
        arena.stop.wait(step.hold_s)
        fleet.order(late_ms=0)


class Duplicates:
    """Everything that is not acknowledged is sent again, many times."""

    name = "duplicates"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice((*PLAIN, "noisy", "twin")),), chance.uniform(2, 6), chance.randint(5, 20))

    def strike(self, arena: Arena, step: Step) -> None:
        for _ in range(int(step.value)):
            arena.fleets[step.targets[0]].order(once=True, resend=True)
            arena.stop.wait(step.hold_s / step.value)


class Poison:
    """One helping of every kind of bad input."""

    name = "poison"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(("poison",), 0.0, chance.getrandbits(32))

    def strike(self, arena: Arena, step: Step) -> None:
        arena.poison.give(make_poison(random.Random(step.value), int(time.time() * 1_000)))


class Wild:
    """One device at a thousand times its rate."""

    name = "wild"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(("noisy",), chance.uniform(3, 6))

    def strike(self, arena: Arena, step: Step) -> None:
        begun_s = time.monotonic()
        arena.fleets["noisy"].order(rate=WILD)
        arena.stop.wait(step.hold_s)
        arena.fleets["noisy"].order(rate=1)
        arena.noisy_spans.append((begun_s, time.monotonic()))


class FullSpool:
    """Silence until the spools overflow, then the agent is replaced by another process on the same files."""

    name = "full_spool"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(("fleet-1",), chance.uniform(10, 30))

    def strike(self, arena: Arena, step: Step) -> None:
        fleet, proxy = arena.fleets["fleet-1"], arena.proxies["fleet-1"]
        proxy.set(Weather(closed=True))
        proxy.cut()
        fleet.order(rate=FULL_RATE)
        arena.stop.wait(step.hold_s)
        fleet.stop()
        proxy.set(Weather())
        fleet.start(rate=1)


class Clone:
    """A device's storage is copied; original and copy go on in the same epoch, each with a nonce of its own.

    ``value`` 0: one after the other, as after restoring an image; 1: at the same time, fighting for the session.
    """

    name = "clone"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(("twin",), chance.uniform(5, 15), chance.randrange(2))

    def strike(self, arena: Arena, step: Step) -> None:
        twin = arena.fleets["twin"]
        twin.stop()
        copy = twin.image(f"image-{len(arena.images)}", twin.folder.with_name(f"image-{len(arena.images)}"))
        twin.copy_spools(copy.folder)
        twin.start()
        arena.images.append(copy)
        if step.value:
            copy.start()
            arena.stop.wait(step.hold_s)
        else:
            arena.stop.wait(step.hold_s)
            twin.stop()
            copy.start()
            arena.stop.wait(step.hold_s / 2)
        copy.order(ended=True)
        if wait_until(lambda: copy.undrained == 0, DRAIN_S, arena.stop):
            copy.stop()
        if twin.pid is None:
            twin.start()
