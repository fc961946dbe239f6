"""Faults of the network, on any of the links that a proxy stands in: devices, gateway and broker, Kafka, store."""

from __future__ import annotations

import random

from tests.torture.arena import GATEWAYS, Arena
from tests.torture.plan import FLEETS, Shape, Step
from tests.torture.proxy import DOWN, UP, Weather

LINKS = (*FLEETS, *GATEWAYS, "kafka", "store")
CALM = Weather()


class Silence:
    """Blackhole: bytes of one direction, or of both, arrive no more; nobody is told."""

    name = "silence"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(LINKS),), chance.uniform(5, 40), chance.randrange(3))

    def strike(self, arena: Arena, step: Step) -> None:
        proxy = arena.proxies[step.targets[0]]
        proxy.set(Weather(silent=(frozenset({UP}), frozenset({DOWN}), frozenset({UP, DOWN}))[int(step.value)]))
        arena.stop.wait(step.hold_s)
        proxy.set(CALM)


class HalfOpen:
    """The far side is gone and the near side does not know; after a while it is told by a reset."""

    name = "half_open"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(LINKS),), chance.uniform(5, 30))

    def strike(self, arena: Arena, step: Step) -> None:
        proxy = arena.proxies[step.targets[0]]
        proxy.lose_far_side()
        arena.stop.wait(step.hold_s)
        proxy.cut()


class Torn:
    """The connection is reset in the middle of a packet, several times."""

    name = "torn"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(LINKS),), chance.uniform(2, 10), chance.randint(2, 5))

    def strike(self, arena: Arena, step: Step) -> None:
        proxy = arena.proxies[step.targets[0]]
        for _ in range(int(step.value)):
            proxy.set(Weather(tear=True))
            arena.stop.wait(step.hold_s / step.value)
        proxy.set(CALM)


class SlowLink:
    """A few kilobytes a second; of the store's link this is the slow database."""

    name = "slow_link"

    def draw(self, chance: random.Random) -> Shape:
        link = chance.choice(LINKS)
        least = 10_000 if link in ("kafka", "store") else 2_000
        return Shape((link,), chance.uniform(5, 30), chance.uniform(least, 10 * least))

    def strike(self, arena: Arena, step: Step) -> None:
        proxy = arena.proxies[step.targets[0]]
        proxy.set(Weather(bytes_per_s=step.value))
        arena.stop.wait(step.hold_s)
        proxy.set(CALM)


class Flapping:
    """Down for four fifths of the time, up for one, again and again."""

    name = "flapping"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(LINKS),), chance.uniform(10, 40), chance.randint(2, 5))

    def strike(self, arena: Arena, step: Step) -> None:
        proxy, period_s = arena.proxies[step.targets[0]], step.hold_s / step.value
        for _ in range(int(step.value)):
            proxy.set(Weather(closed=True))
            proxy.cut()
            arena.stop.wait(period_s * 0.8)
            proxy.set(CALM)
            arena.stop.wait(period_s * 0.2)
