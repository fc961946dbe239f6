"""The signal catalogue, loaded from ``signals.toml``: what each number on the wire means.

Vehicle paths follow COVESA VSS 6.0, turbine names IEC 61400-25-2, pumps our own machine tags; what a standard
lacks stands under ``Fleetstream.``. Every signal declares a resolution (a power of ten of its unit), so that a
value is an integer and sums do not depend on order.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType

from contracts.errors import Fatal, Rejected
from contracts.limits import DEFAULT_LATENESS, LATENESS_CLASSES_S

KINDS = ("gauge", "counter", "state", "angle", "position")
DATATYPES = ("float", "double", "boolean", "int8", "uint8")
DEFAULT_GRACE_S = 15
"""How long after its end a window waits for ordinary delay (one packet, one link, one batch) before it closes."""


class Retention(IntEnum):
    """Retention class: a full spool drops the lowest first; PRIORITY (crash records) is never dropped."""

    BULK = 0
    STANDARD = 1
    PERSONAL = 2
    SAFETY = 3
    PRIORITY = 9


@dataclass(frozen=True, slots=True)
class Signal:
    """One row of the catalogue; ``minimum`` and ``maximum`` are inclusive and in ``unit``."""

    number: int
    path: str
    unit: str
    datatype: str
    exponent: int
    minimum: float
    maximum: float
    kind: str
    source: str
    text: str
    axis: str = ""
    retention: Retention = Retention.STANDARD
    grace_s: int = DEFAULT_GRACE_S
    transient: bool = False
    retired: bool = False
    lateness: str = DEFAULT_LATENESS
    """A key of ``LATENESS_CLASSES_S``."""

    @property
    def lateness_s(self) -> int:
        """A reading received later than this after its event changes nothing and is quarantined."""
        return LATENESS_CLASSES_S[self.lateness]

    @property
    def resolution(self) -> float:
        """Smallest step, in ``unit``."""
        return 10.0**self.exponent

    def to_units(self, value: float) -> int:
        """Nearest integer multiple of the resolution, ties to even; ``value`` must be finite."""
        return round(value * 10.0**-self.exponent) if self.exponent < 0 else round(value / 10.0**self.exponent)

    def from_units(self, units: int) -> float:
        """The double nearest to ``units`` times the resolution: what parsing the decimal text would give."""
        return units / 10.0**-self.exponent if self.exponent < 0 else float(units * 10**self.exponent)


class Catalogue:
    """Signals by number and by path."""

    def __init__(self, signals: tuple[Signal, ...]) -> None:
        self._by_number: Mapping[int, Signal] = MappingProxyType({signal.number: signal for signal in signals})
        self._by_path: Mapping[str, Signal] = MappingProxyType({signal.path: signal for signal in signals})
        if not len(self._by_number) == len(self._by_path) == len(signals):
            raise Fatal("the signal catalogue repeats a number or a path; give the newer row its own")

    def __iter__(self) -> Iterator[Signal]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def by_number(self, number: int) -> Signal:
        """Raises Rejected('unknown_signal')."""
        try:
            return self._by_number[number]
        except KeyError:
            raise Rejected("unknown_signal", str(number)) from None

    def by_path(self, path: str) -> Signal:
        """Raises Rejected('unknown_signal')."""
        try:
            return self._by_path[path]
        except KeyError:
            raise Rejected("unknown_signal", path) from None


def parse_catalogue(text: str) -> Catalogue:
    """Build a catalogue from TOML text. Raises Fatal when a row is not sound."""
    return Catalogue(tuple(_row(row) for row in tomllib.loads(text)["signal"]))


@cache
def catalogue() -> Catalogue:
    """The catalogue that ships with this version."""
    return parse_catalogue((Path(__file__).parent / "signals.toml").read_text(encoding="utf-8"))


def _row(row: dict[str, object]) -> Signal:
    retention = Retention[str(row.pop("retention", "standard")).upper()]
    try:
        signal = Signal(**row, retention=retention)  # type: ignore[arg-type]
    except TypeError as error:
        raise Fatal(f"catalogue row {row.get('number')}: {error}") from error
    sound = (
        signal.kind in KINDS and signal.datatype in DATATYPES and signal.minimum < signal.maximum and signal.number > 0
    ) and signal.grace_s < LATENESS_CLASSES_S.get(signal.lateness, 0)
    if not sound or not -9 <= signal.exponent <= 6 or not signal.text.endswith("."):
        raise Fatal(
            f"catalogue row {signal.number} ({signal.path}): "
            "kind, datatype, range, exponent, grace, lateness or text is not sound"
        )
    return signal
