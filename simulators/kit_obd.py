"""OBD-II drives as they were recorded: gzip CSV with a local time of day, read in place and replayed as a source.

One file is one drive and one asset, named by the file; the date stands in the name, times are local in Europe/Berlin
(or another zone). Header units were encoded twice in most files, so columns are told by their name before the bracket.
``all`` gives each non-empty cell of each row, ``changed`` each that differs from the cell directly above.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Final, Literal
from zoneinfo import ZoneInfo

from contracts.names import check_name
from contracts.signals import catalogue
from edge_agent.sources.base import Reading
from simulators.errors import RecordingError

Values = Literal["all", "changed"]
ZONE: Final = ZoneInfo("Europe/Berlin")
SUFFIX: Final = ".csv.gz"
COLUMNS: Final = {
    "Engine Coolant Temperature": "Vehicle.Powertrain.CombustionEngine.EngineCoolant.Temperature",
    "Intake Manifold Absolute Pressure": "Vehicle.Powertrain.CombustionEngine.MAP",
    "Engine RPM": "Vehicle.Powertrain.CombustionEngine.Speed",
    "Vehicle Speed Sensor": "Vehicle.Speed",
    "Intake Air Temperature": "Fleetstream.Engine.IntakeAirTemperature",
    "Air Flow Rate from Mass Flow Sensor": "Vehicle.Powertrain.CombustionEngine.MAF",
    "Absolute Throttle Position": "Vehicle.Powertrain.CombustionEngine.TPS",
    "Ambient Air Temperature": "Vehicle.Exterior.AirTemperature",
    "Accelerator Pedal Position D": "Vehicle.Chassis.Accelerator.PedalPosition",
    "Accelerator Pedal Position E": "Fleetstream.Engine.AcceleratorPedalPositionE",
}
BACKWARDS: Final = timedelta(hours=12)
"""A time of day that falls by more than this is midnight; less is a clock that was set back."""

_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})_")


def device_name(path: Path) -> str:
    """The asset's and device's name: the file name without its ending. Raises Rejected('bad_name')."""
    return check_name("recording", path.name.removesuffix(SUFFIX).removesuffix(".csv"))


def recorded_on(path: Path) -> date:
    """The date in the file name. Raises RecordingError('no_date')."""
    found = _DATE.match(path.name)
    if not found:
        raise RecordingError("no_date", f"{path.name} does not begin with a date such as 2017-07-10_")
    return date.fromisoformat(found[1])


class Recording:
    """Rows of one file: (event time in Unix epoch milliseconds, readings)."""

    def __init__(self, path: Path, values: Values, zone: ZoneInfo = ZONE) -> None:
        self._name = path.name
        self._values = values
        self._zone = zone
        self._day = recorded_on(path)
        self._clock: time | None = None
        self._text = _open(path)
        self._rows = csv.reader(self._text)
        try:
            self._signals = self._header()
        except RecordingError:
            self._text.close()
            raise
        self._above: list[str] = [""] * len(self._signals)

    def __iter__(self) -> Iterator[tuple[int, list[Reading]]]:
        try:
            for row in self._rows:
                if len(row) != len(self._signals) + 1:
                    raise ValueError(f"{len(row)} cells, the header has {len(self._signals) + 1}")
                yield self._read(row)
        except (ValueError, EOFError, OSError) as error:
            raise RecordingError("bad_recording", f"{self._name}, line {self._rows.line_num}: {error}") from error

    def close(self) -> None:
        self._text.close()

    def _read(self, row: list[str]) -> tuple[int, list[Reading]]:
        at_ms = self._at_ms(time.fromisoformat(row[0]))
        cells, above = row[1:], self._above
        every = self._values == "all"
        self._above = cells
        return at_ms, [
            Reading(signal, at_ms, float(cell))
            for signal, cell, before in zip(self._signals, cells, above, strict=True)
            if cell and (every or cell != before)
        ]

    def _at_ms(self, clock: time) -> int:
        """Local time of day to Unix epoch milliseconds; a fall past midnight begins the next day."""
        if self._clock is not None and _since_midnight(self._clock) - _since_midnight(clock) > BACKWARDS:
            self._day += timedelta(days=1)
        self._clock = clock
        local = datetime.combine(self._day, clock, self._zone)
        return round((local.astimezone(UTC) - _EPOCH) / _MILLISECOND)

    def _header(self) -> list[int]:
        header = next(self._rows, [])
        if header[:1] != ["Time"]:
            raise RecordingError("bad_recording", f"{self._name}, line 1: the first column is not Time")
        names = [cell.partition(" [")[0] for cell in header[1:]]
        unknown = sorted(set(names) - set(COLUMNS))
        if unknown:
            raise RecordingError("bad_recording", f"{self._name}, line 1: unknown columns {', '.join(unknown)}")
        return [catalogue().by_path(COLUMNS[name]).number for name in names]


def _open(path: Path) -> io.TextIOWrapper:
    """The file's text; Recording.close closes it."""
    return io.TextIOWrapper(gzip.open(path) if path.suffix == ".gz" else path.open("rb"), "utf-8", newline="")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def _since_midnight(clock: time) -> timedelta:
    return timedelta(hours=clock.hour, minutes=clock.minute, seconds=clock.second, microseconds=clock.microsecond)


class RecordingSource:
    """A recording as the agent's source, ``speed`` times as fast as it was driven.

    The cursor is the number of rows that were read; ``seek`` reads them again, so that ``changed`` knows what stood
    above. Due times count from the first row that this run reads, so a resumed replay keeps its pace.
    """

    can_wait = True

    def __init__(self, path: Path, speed: float, values: Values, zone: ZoneInfo = ZONE) -> None:
        self._recording = Recording(path, values, zone)
        self._rows = iter(self._recording)
        self._speed = speed
        self._done_rows = 0
        self._next = next(self._rows, None)
        self._began: tuple[int, int] | None = None

    @property
    def cursor(self) -> str | None:
        return str(self._done_rows)

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return self._done_rows

    @property
    def finished(self) -> bool:
        return self._next is None

    def seek(self, cursor: str) -> None:
        while self._next is not None and self._done_rows < int(cursor):
            self._advance()

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        if self._next is None:
            return ()
        self._began = self._began or (now_ms, self._next[0])
        due_ms = self._began[1] + (now_ms - self._began[0]) * self._speed
        readings: list[Reading] = []
        while self._next is not None and self._next[0] <= due_ms and len(readings) < limit:
            readings += self._next[1]
            self._advance()
        return readings

    def close(self) -> None:
        self._recording.close()

    def _advance(self) -> None:
        self._done_rows += 1
        self._next = next(self._rows, None)
