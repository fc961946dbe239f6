"""Reads the published data sets in their own layouts, plain or gzip, from any folder; knows no file by name.

Expected under the folder, each part optional: ``nab/data/<folder>/<file>.csv`` with
``nab/labels/combined_windows.json``; ``skab/<folder>/<n>.csv`` with an ``anomaly`` column; ``cmapss/train_*.txt``,
``test_*`` and ``RUL_*``; ``gearbox/{h,b}<Hz>hz<load>.csv``; ``kit-obd/*.csv``.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from anomaly.benchmarks.cmapss import Turbofans, cycles
from anomaly.benchmarks.drives import COLUMNS, Drive
from anomaly.benchmarks.nab_run import Input
from anomaly.benchmarks.skab import Run
from anomaly.types import Floats
from infra.errors import SetupError

GEARBOX_NAME = re.compile(r"([hb])(\d+)hz(\d+)$")


def text_of(path: Path) -> str:
    """The text of a file, unpacked when its name ends in .gz."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")


def files(folder: Path, ending: str) -> Iterator[tuple[str, Path]]:
    """Stem and path of the files below ``folder`` with this ending, packed or not, in order of name."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        name = path.name.removesuffix(".gz")
        if path.is_file() and name.endswith(ending):
            yield name.removesuffix(ending), path


def read_nab(folder: Path) -> list[Input]:
    """Series that the labels know. Raises SetupError when a labelled time is not in its series."""
    labels = folder / "nab" / "labels" / "combined_windows.json"
    if not labels.is_file():
        return []
    known = json.loads(labels.read_text())
    found = []
    for stem, path in files(folder / "nab" / "data", ".csv"):
        name = f"{path.parent.name}/{stem}.csv"
        if name not in known:
            continue
        rows = list(csv.reader(io.StringIO(text_of(path))))[1:]
        at_ms = np.array([_ms(row[0]) for row in rows], dtype=np.int64)
        windows = tuple((_row_at(at_ms, left, name), _row_at(at_ms, right, name)) for left, right in known[name])
        found.append(Input(name, at_ms, np.array([float(row[1]) for row in rows]), windows))
    return found


def read_skab(folder: Path) -> dict[str, list[Run]]:
    """Runs with labels, by folder."""
    found: dict[str, list[Run]] = {}
    for stem, path in files(folder / "skab", ".csv"):
        rows = list(csv.reader(io.StringIO(text_of(path)), delimiter=";"))
        head = rows[0]
        if "anomaly" not in head:
            continue
        columns = [number for number, name in enumerate(head) if name not in ("datetime", "anomaly", "changepoint")]
        values = np.array([[float(row[number]) for number in columns] for row in rows[1:]])
        anomalous = np.array([float(row[head.index("anomaly")]) > 0 for row in rows[1:]])
        found.setdefault(path.parent.name, []).append(Run(f"{path.parent.name}/{stem}", values, anomalous))
    return found


def read_cmapss(folder: Path) -> list[Turbofans]:
    """Every subset whose three files are there."""
    paths = dict(files(folder / "cmapss", ".txt"))
    found = []
    for stem, path in sorted(paths.items()):
        name = stem.removeprefix("train_")
        if stem == name or f"test_{name}" not in paths or f"RUL_{name}" not in paths:
            continue
        truth = _numbers(paths[f"RUL_{name}"]).ravel()
        found.append(Turbofans(name, cycles(_numbers(path)), cycles(_numbers(paths[f"test_{name}"])), truth))
    return found


def read_gearbox(folder: Path) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Healthy and broken recordings by load."""
    kinds: dict[str, dict[str, Floats]] = {"h": {}, "b": {}}
    for stem, path in files(folder / "gearbox", ".csv"):
        told = GEARBOX_NAME.match(stem)
        if told:
            kinds[told[1]][told[3]] = np.loadtxt(io.StringIO(text_of(path)), delimiter=",", skiprows=1)
    return kinds["h"], kinds["b"]


def read_drives(folder: Path) -> list[Drive]:
    """Drives that have all needed columns, brought to 1 Hz by the last value of each second."""
    found = []
    for stem, path in files(folder / "kit-obd", ".csv"):
        rows = list(csv.reader(io.StringIO(text_of(path))))
        head = [name.split(" [")[0].strip() for name in rows[0]]
        if "Time" not in head or any(name not in head for name in COLUMNS):
            continue
        where = [head.index(name) for name in COLUMNS]
        second = np.array([_second_of_day(row[head.index("Time")]) for row in rows[1:]])
        second += 86_400 * np.cumsum(np.append(False, np.diff(second) < -43_200))
        values = np.array([[float(row[number] or "nan") for number in where] for row in rows[1:]])
        grid = np.arange(second[0] + 1, second[-1] + 1)
        last = np.searchsorted(second, grid) - 1
        found.append(Drive(stem, 1_000 * grid, values[last]))
    return found


def _second_of_day(text: str) -> int:
    hour, minute, second = text.split(":")
    return int(hour) * 3_600 + int(minute) * 60 + int(float(second))


def _numbers(path: Path) -> Floats:
    return np.atleast_2d(np.loadtxt(io.StringIO(text_of(path))))


def _ms(text: str) -> int:
    """NAB's times have no zone; read as UTC they keep their order and their hour of the day."""
    return int(datetime.fromisoformat(text.split(".")[0]).replace(tzinfo=UTC).timestamp() * 1000)


def _row_at(at_ms: np.ndarray, text: str, name: str) -> int:
    found = np.flatnonzero(at_ms == _ms(text))
    if not len(found):
        raise SetupError(f"The labels name {text}, which is not in {name}; take labels and data of the same version")
    return int(found[0])
