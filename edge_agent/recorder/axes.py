"""Axes: from the sensor's to the vehicle's (ISO 8855, as VSS uses) to those of the record (49 CFR 563.5).

ISO 8855: x forward, y LEFT, z UP. The record: x forward, y to the RIGHT as the driver sees it, z DOWN, normal
acceleration zero at rest. So y and z change sign, and with them pitch and yaw; roll keeps it. Inside the recorder
there is only the record's frame; this module is the one door.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

STANDARD_GRAVITY_MPS2: Final = 9.80665
KMH_PER_MPS: Final = 3.6

MIXED_SHARE: Final = 0.1
"""A sensor axis that contributes less than this to a record axis cannot spoil it: below the table's 10 %."""

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]

BLOCK_SAMPLES: Final = 200
"""Readings averaged for one calibration at a standstill (0.2 to 0.4 s at the rates that the recorder asks for)."""

QUIET_SPREAD_MPS2: Final = 4.0
"""A block whose readings differ by more was no standstill (door slam, impact at rest): it is thrown away."""


def record_axes(x: float, y: float, z: float) -> Vector:
    """An ISO 8855 vector in the record's axes.

    >>> record_axes(1.0, 2.0, 3.0)
    (1.0, -2.0, -3.0)
    """
    return x, -y, -z


def rotation(roll_deg: float, pitch_deg: float, yaw_deg: float) -> Matrix:
    """Sensor axes to vehicle axes (ISO 8855) for a sensor mounted turned by yaw, then pitch, then roll."""
    cr, sr = _cos_sin(roll_deg)
    cp, sp = _cos_sin(pitch_deg)
    cy, sy = _cos_sin(yaw_deg)
    return (
        (cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr),
        (sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr),
        (-sp, cp * sr, cp * cr),
    )


def _cos_sin(degrees: float) -> tuple[float, float]:
    radians = math.radians(degrees)
    return math.cos(radians), math.sin(radians)


def turn(matrix: Matrix, x: float, y: float, z: float) -> Vector:
    """``matrix`` times the vector."""
    a, b, c = matrix
    return (
        a[0] * x + a[1] * y + a[2] * z,
        b[0] * x + b[1] * y + b[2] * z,
        c[0] * x + c[1] * y + c[2] * z,
    )


@dataclass(slots=True)
class _Block:
    """Readings being averaged."""

    count: int
    total: list[float]
    lowest: list[float]
    highest: list[float]


class MotionFrame:
    """Raw accelerometer readings in, acceleration in the record's axes out; learns the zero at each standstill.

    What the sensor shows at rest (gravity, offset, a slope) is subtracted; before the first standstill it is nominal
    gravity turned into the mounting.
    """

    def __init__(self, mounting: Matrix) -> None:
        self._mounting = mounting
        gravity = STANDARD_GRAVITY_MPS2
        self._zero: Vector = (mounting[2][0] * gravity, mounting[2][1] * gravity, mounting[2][2] * gravity)
        self._block = _empty()

    def convert(self, x: float, y: float, z: float) -> Vector:
        """Acceleration (m/s²) in the record's axes."""
        zero = self._zero
        return record_axes(*turn(self._mounting, x - zero[0], y - zero[1], z - zero[2]))

    def learn(self, x: float, y: float, z: float) -> None:
        """One raw reading taken while the vehicle stands."""
        block = self._block
        block.count += 1
        for axis, value in enumerate((x, y, z)):
            block.total[axis] += value
            block.lowest[axis] = min(block.lowest[axis], value)
            block.highest[axis] = max(block.highest[axis], value)
        if block.count < BLOCK_SAMPLES:
            return
        spread = max(high - low for low, high in zip(block.lowest, block.highest, strict=True))
        if spread <= QUIET_SPREAD_MPS2:
            self._zero = (block.total[0] / block.count, block.total[1] / block.count, block.total[2] / block.count)
        self._block = _empty()

    def touched(self, saturated: tuple[bool, bool, bool]) -> int:
        """The record's axes (bits 1, 2, 4) into which a saturated sensor axis enters with more than a tenth."""
        bits = 0
        for index, row in enumerate(self._mounting):
            if any(full and abs(share) > MIXED_SHARE for full, share in zip(saturated, row, strict=True)):
                bits |= 1 << index
        return bits

    def moving(self) -> None:
        """The vehicle moves: an unfinished block is worth nothing."""
        if self._block.count:
            self._block = _empty()


def _empty() -> _Block:
    return _Block(0, [0.0, 0.0, 0.0], [math.inf] * 3, [-math.inf] * 3)
