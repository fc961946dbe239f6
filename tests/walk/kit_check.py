"""Compare what SQL holds of replayed recordings with the files themselves, in a few lines that share no code with us.

    fleetstream replay recordings/*.csv.gz --speed 200 --values all
    python -m tests.walk.kit_check all recordings/*.csv.gz

Counts, sums, first and last time per file and signal; one JSON line, exit code 1 when any differs.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

ENGINE = "Vehicle.Powertrain.CombustionEngine."
SIGNALS = {
    "Engine Coolant Temperature": ENGINE + "EngineCoolant.Temperature", "Engine RPM": ENGINE + "Speed",
    "Intake Manifold Absolute Pressure": ENGINE + "MAP", "Vehicle Speed Sensor": "Vehicle.Speed",
    "Intake Air Temperature": "Fleetstream.Engine.IntakeAirTemperature",
    "Air Flow Rate from Mass Flow Sensor": ENGINE + "MAF", "Absolute Throttle Position": ENGINE + "TPS",
    "Ambient Air Temperature": "Vehicle.Exterior.AirTemperature",
    "Accelerator Pedal Position D": "Vehicle.Chassis.Accelerator.PedalPosition",
    "Accelerator Pedal Position E": "Fleetstream.Engine.AcceleratorPedalPositionE",
}  # fmt: skip
QUERY = (
    "SELECT asset, signal, count(*) AS n, round(sum(value)::numeric, 2) AS total, min(measured_at) AS first,"
    " max(measured_at) AS last FROM readings WHERE asset = ANY(string_to_array('{}', ',')) GROUP BY 1, 2"
)
Row = tuple[int, Decimal, datetime, datetime]


def from_file(path: Path, mode: str) -> dict[tuple[str, str], Row]:
    name, berlin = path.name.removesuffix(".csv.gz"), ZoneInfo("Europe/Berlin")
    found: dict[tuple[str, str], Row] = {}
    above: list[str] = []
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        heads, *rows = csv.reader(file)
    day, earlier = datetime.fromisoformat(name[:10]), ""
    for row in rows:
        if row[0] < earlier:
            day += timedelta(days=1)
        earlier = row[0]
        clock = datetime.strptime(row[0], "%H:%M:%S.%f").replace(tzinfo=berlin)
        at = clock.replace(year=day.year, month=day.month, day=day.day).astimezone(ZoneInfo("UTC"))
        for number in range(1, len(row)):
            if row[number] == "" or (mode == "changed" and above and above[number] == row[number]):
                continue
            key = (name, SIGNALS[heads[number].rsplit(" [", 1)[0]])
            n, total, first, last = found.get(key, (0, Decimal(0), at, at))
            found[key] = (n + 1, total + Decimal(row[number]), min(first, at), max(last, at))
        above = row
    return found


def from_store(names: list[str]) -> dict[tuple[str, str], Row]:
    command = [str(Path(sys.executable).parent / "fleetstream"), "sql", QUERY.format(",".join(names)), "--csv"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {
        (row["asset"], row["signal"]): (
            int(row["n"]), Decimal(row["total"]),
            datetime.fromisoformat(row["first"]), datetime.fromisoformat(row["last"]),
        )
        for row in csv.DictReader(io.StringIO(answer))
    }  # fmt: skip


def main(mode: str, paths: list[Path]) -> int:
    told = {key: row for path in paths for key, row in from_file(path, mode).items()}
    held = from_store([path.name.removesuffix(".csv.gz") for path in paths])
    differ = sorted(key for key in told.keys() | held.keys() if told.get(key) != held.get(key))
    values = sum(row[0] for row in told.values()), sum(row[0] for row in held.values())
    summary = {"mode": mode, "files": len(paths), "series": len(told), "values_in_files": values[0]}
    print(json.dumps({**summary, "values_in_store": values[1], "series_that_differ": differ[:5], "equal": not differ}))
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], [Path(name) for name in sys.argv[2:]]))
