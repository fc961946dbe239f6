"""How a driver wants to move: free road, slower pieces ahead, red lights. Pure; speeds in m/s, times in s."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

from simulators.roads import Circuit, Piece

LIGHT_CYCLE_S: Final = 60.0
LIGHT_RED_S: Final = 26.0
HARDEST_BRAKING: Final = 7.5
"""m/s^2 on dry asphalt, a little under what tyres allow."""
REACTION_S: Final = 0.5
STOP_GAP_M: Final = 1.5
EXPONENT: Final = 4
"""Of the intelligent driver model's free-road term (Treiber, Hennecke, Helbing 2000)."""


@dataclass(frozen=True, slots=True)
class Driver:
    """One temperament; accelerations in m/s^2, ``pace`` is the share of the speed limit that is driven."""

    pace: float
    acceleration: float
    braking: float
    cornering: float

    @classmethod
    def born(cls, chance: random.Random) -> Driver:
        """From calm to sporting: the four traits go together."""
        spirit = chance.betavariate(2, 3)
        return cls(0.88 + 0.25 * spirit, 1.1 + 1.6 * spirit, 1.6 + 1.8 * spirit, 1.8 + 2.0 * spirit)

    def wish(self, circuit: Circuit, at_m: float, speed: float, at_s: float) -> float:
        """Wanted acceleration at ``at_m`` along the circuit, driving ``speed``, at wall time ``at_s``."""
        pose = circuit.pose(at_m)
        free = self._comfortable(pose.limit_mps, pose.curvature_per_m)
        wanted = self.acceleration * (1 - (speed / free) ** EXPONENT)
        horizon = speed * speed / (2 * self.braking) + 25.0
        for distance, piece in circuit.pieces_ahead(at_m, horizon):
            wanted = min(wanted, self._towards(speed, self._speed_on(piece), distance))
        distance, stop = circuit.next_stop(at_m)
        if distance < horizon and is_red(stop.phase_s, at_s) and speed * speed <= 2 * HARDEST_BRAKING * distance:
            wanted = min(wanted, self._towards(speed, 0.0, max(0.0, distance - STOP_GAP_M)))
        return max(wanted, -HARDEST_BRAKING)

    def _speed_on(self, piece: Piece) -> float:
        return self._comfortable(piece.limit_mps, piece.curvature_per_m)

    def _comfortable(self, limit: float, curvature: float) -> float:
        free = limit * self.pace
        return min(free, math.sqrt(self.cornering / abs(curvature))) if curvature else free

    def _towards(self, speed: float, target: float, distance: float) -> float:
        allowed = math.sqrt(target * target + 2 * self.braking * distance)
        return (allowed - speed) / REACTION_S


def is_red(phase_s: float, at_s: float) -> bool:
    """Whether a light of this phase is red at wall time ``at_s``."""
    return (at_s + phase_s) % LIGHT_CYCLE_S < LIGHT_RED_S
