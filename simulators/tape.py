"""Drives recorded ahead of time as packet bodies, so that a load generator spends its time on codec and network.

The values are those of simulated cars; a packet is still encoded whole, with its own header, when it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from contracts.packet import Block, Header, Packet, encode_packet
from contracts.signals import Signal, catalogue
from simulators.car import Car
from simulators.machine import STEP_MS

SIGNALS: Final = (1, 4, 5, 10, 11, 12, 20, 23, 25, 28)
"""Ten of a car's signals: speed, place, three accelerations, engine."""
MORE_SIGNALS: Final = (13, 21, 22, 24, 30, 31, 33, 40, 41, 42)
"""Ten more, for the profile of 20."""
START_MS: Final = 1_790_000_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What one packet holds. ``rate_hz`` is 1, 2, 5 or 10 per signal; ``packet_ms`` a multiple of its period."""

    packet_ms: int = 1_000
    rate_hz: int = 5
    signals: tuple[int, ...] = SIGNALS

    def __post_init__(self) -> None:
        period_ms = 1_000 // self.rate_hz
        if self.rate_hz not in (1, 2, 5, 10) or self.packet_ms % period_ms:
            raise ValueError(f"{self.rate_hz} Hz does not divide packets of {self.packet_ms} ms")

    @property
    def samples(self) -> int:
        """Samples of one packet."""
        return len(self.signals) * self.packet_ms * self.rate_hz // 1_000


@dataclass(frozen=True, slots=True)
class Tape:
    """Packet bodies of one drive, to be played round and round."""

    bodies: tuple[tuple[Block, ...], ...]
    samples: int

    def packet(self, header: Header, turn: int) -> bytes:
        """The frame of the ``turn``-th packet under this header, whose sample count is set here."""
        blocks = self.bodies[turn % len(self.bodies)]
        return encode_packet(Packet(replace(header, samples=self.samples), blocks))


def record(seed: int, shape: Shape, packets: int) -> Tape:
    """Drive a car for ``packets`` packets' time."""
    car = Car(seed)
    signals = [catalogue().by_number(number) for number in shape.signals]
    every, at_ms = 1_000 // shape.rate_hz // STEP_MS, START_MS
    bodies = []
    for _ in range(packets):
        rows: list[list[float]] = []
        for step in range(shape.packet_ms // STEP_MS):
            car.step(at_ms)
            at_ms += STEP_MS
            if step % every == 0:
                rows.append([value or 0.0 for value in car.measure(shape.signals)])
        offsets = tuple(range(0, shape.packet_ms, 1_000 // shape.rate_hz))
        columns = zip(*rows, strict=True)
        bodies.append(tuple(_block(signal, offsets, column) for signal, column in zip(signals, columns, strict=True)))
    return Tape(tuple(bodies), shape.samples)


def _block(signal: Signal, offsets: tuple[int, ...], values: tuple[float, ...]) -> Block:
    units = [signal.to_units(value) for value in values]
    return Block(signal.number, signal.exponent, units[0], offsets, tuple(unit - units[0] for unit in units))
