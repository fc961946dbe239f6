"""A recorded drive through the whole line: every value once, however counted, also after a SIGKILL in the middle."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from contracts.tables import ROLE_READER
from infra.cli.replay import VALUES
from infra.session import Session
from tests.walk.history import wait_for

ROOT = Path(__file__).parents[2]
COLUMNS = {
    "Engine Coolant Temperature [Â°C]": "Vehicle.Powertrain.CombustionEngine.EngineCoolant.Temperature",
    "Engine RPM [RPM]": "Vehicle.Powertrain.CombustionEngine.Speed",
    "Vehicle Speed Sensor [km/h]": "Vehicle.Speed",
    "Air Flow Rate from Mass Flow Sensor [g/s]": "Vehicle.Powertrain.CombustionEngine.MAF",
}
ROWS = 12_000
LIMIT_S = 600.0
Summary = dict[str, tuple[int, float, int, int]]
"""Per signal: count, sum, first and last time in Unix epoch milliseconds."""


def make_drive(path: Path, seed: int) -> Path:
    """About 18 minutes of drive, one cell polled per row, as an OBD logger writes it."""
    chance, cells, at_ms = random.Random(seed), ["", "", "", ""], 8 * 3_600_000
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["Time", *COLUMNS])
        for row in range(ROWS):
            at_ms += chance.randint(80, 100)
            fresh = (
                chance.randint(80, 95),
                f"{chance.uniform(700, 3000):.1f}",
                chance.randint(0, 130),
                chance.uniform(0, 90),
            )
            cells[row % 4] = f"{fresh[3]:.2f}" if row % 4 == 3 else str(fresh[row % 4])
            clock = f"{at_ms // 3_600_000:02}:{at_ms // 60_000 % 60:02}:{at_ms // 1_000 % 60:02}.{at_ms % 1_000:03}"
            rows.writerow([clock, *cells])
    return path


def expected(path: Path, values: str) -> Summary:
    """The same sums by an independent few lines."""
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in COLUMNS.values()}
    above: dict[str, str] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            local = datetime.fromisoformat(f"{path.name[:10]}T{row['Time']}").replace(tzinfo=ZoneInfo("Europe/Berlin"))
            for column, name in COLUMNS.items():
                if row[column] and (values == "all" or row[column] != above.get(column)):
                    found[name].append((round(local.timestamp() * 1_000), float(row[column])))
            above = row
    return {n: (len(f), round(sum(v for _, v in f), 2), f[0][0], f[-1][0]) for n, f in found.items()}


def stored(line: Session, asset: str) -> Summary:
    with psycopg.connect(line.stack.dsn(ROLE_READER)) as connection:
        rows = connection.execute(
            "SELECT signal, count(*), round(sum(value)::numeric, 2)::float8,"
            " (extract(epoch FROM min(measured_at)) * 1000)::bigint,"
            " (extract(epoch FROM max(measured_at)) * 1000)::bigint"
            " FROM readings WHERE asset = %s GROUP BY signal",
            (asset,),
        ).fetchall()
    return {signal: (count, total, first, last) for signal, count, total, first, last in rows}


@pytest.fixture
def command(line: Session) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The command line against the running stack."""
    home = str(line.stack.settings.home)
    yield [sys.executable, "-m", "infra", "replay"], {**os.environ, "FLEETSTREAM_HOME": home, "PYTHONPATH": str(ROOT)}


def finish(arguments: list[str], environment: dict[str, str]) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        arguments, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr


@pytest.mark.parametrize("values", VALUES)
def test_every_value_arrives_once_after_a_kill_in_the_middle(
    line: Session, command: tuple[list[str], dict[str, str]], tmp_path: Path, values: str
) -> None:
    arguments, environment = command
    drives = [make_drive(tmp_path / f"2017-07-1{n}_{values}_{n}.csv.gz", n) for n in range(2)]
    options = [*map(str, drives), "--values", values]
    slowly, fast = [*options, "--speed", "50"], [*options, "--speed", "1000"]
    histories = [line.stack.settings.home / "replay" / f"2017-07-1{n}_{values}_{n}" / "history.jsonl" for n in range(2)]
    with (tmp_path / "first.log").open("wb") as log:
        first = subprocess.Popen([*arguments, *slowly], env=environment, cwd=ROOT, stdout=log, stderr=log)
        wait_for("packets are accepted", lambda: all(h.exists() and h.stat().st_size > 100 for h in histories), LIMIT_S)
        first.kill()
        assert first.wait() == -9, "the replay was over before it was killed"

    code, _, said = finish([*arguments, *fast], environment)
    assert code == 1 and "--resume" in said
    code, report, said = finish([*arguments, *fast, "--resume"], environment)
    assert code == 0, said
    assert report["lost"] == report["doubled"] == 0 and report["accepted"] == report["stored"]
    for drive in drives:
        asset = drive.name.removesuffix(".csv.gz")
        assert stored(line, asset) == expected(drive, values)
        assert report["assets"][asset] == sum(count for count, *_ in expected(drive, values).values())

    code, again, _ = finish([*arguments, *fast, "--resume"], environment)
    assert code == 0 and again["stored"] == report["stored"], "a finished replay sends nothing more"
    code, _, said = finish([*arguments, *fast, "--fresh"], environment)
    assert code == 1 and "twice" in said
