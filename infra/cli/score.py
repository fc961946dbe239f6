"""``fleetstream score``: detection and remaining-life scores on the data sets under a folder.

Last line of output: one JSON object. ``--page`` writes the tables as Markdown, and beside it the model card of
remaining life. ``cuts`` is no score: it feeds every detector's series whole and in pieces and counts what differs.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from anomaly.benchmarks import cmapss, cuts, drives, gearbox, nab_run, skab
from anomaly.benchmarks.page import page
from anomaly.life.card import card
from anomaly.life.model import LifeSettings
from infra import score_data, score_fleet
from infra.errors import SetupError

SEEDS = 5
"""Remaining life is reported over this many seeds."""

MIN_DRIVES = 4
MONTHS = 1_000.0
CUT_ROWS = 1_500
"""Readings of each series that are fed whole and in pieces."""
CARD = "life-model-card.md"
FLEET_SEED = 1

app = typer.Typer()


@app.command(epilog="Example: fleetstream score --data ../shared/data --only skab --only gearbox")
def score(
    data: Path = typer.Option(Path("../shared/data"), "--data", help="Folder with nab, skab, cmapss, gearbox."),
    only: list[str] = typer.Option([], "--only", help="One part of nab, skab, gearbox, drives, fleet, cmapss, cuts."),
    seeds: int = typer.Option(SEEDS, "--seeds", min=1, help="Seeds for remaining life."),
    months: float = typer.Option(MONTHS, "--months", min=0, help="Simulated vehicle-months; 0 leaves the fleet out."),
    page_file: Path | None = typer.Option(None, "--page", help="Markdown file for the tables; its other parts stay."),
) -> None:
    """Score every published data set that is there; parameters are fixed, the same for all series."""
    if not data.is_dir():
        raise SetupError(f"There is no folder {data}; name the folder of the data sets with --data")
    parts: dict[str, Callable[[Path, int], Any]] = {
        "nab": _nab, "skab": _skab, "gearbox": _gearbox, "drives": _drives, "fleet": partial(_fleet, months=months),
        "cmapss": _cmapss, "cuts": _cuts,
    }  # fmt: skip
    unknown = set(only) - set(parts)
    if unknown:
        raise typer.BadParameter(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    result: dict[str, Any] = {}
    for name, run in parts.items():
        if only and name not in only:
            continue
        began = time.perf_counter()
        tables = run(data, seeds)
        if not tables:
            progress(f"{name}: nothing under {data}, left out")
            continue
        result[name] = tables
        progress(f"{name}: done in {time.perf_counter() - began:.0f} s")
    if not result:
        raise SetupError(f"{data} holds none of {', '.join(parts)}; nothing was scored")
    typer.echo(page(result))
    if page_file is not None:
        before = page_file.read_text(encoding="utf-8") if page_file.is_file() else ""
        page_file.write_text(page(result, before), encoding="utf-8")
        if "cmapss" in result:
            (page_file.parent / CARD).write_text(card(result["cmapss"], LifeSettings()), encoding="utf-8")
    typer.echo(json.dumps(finite(result), allow_nan=False))


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have, rounded to six digits."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _nab(data: Path, seeds: int) -> dict[str, Any]:
    inputs = score_data.read_nab(data)
    return {"corpus": nab_run.table(inputs, progress)} if inputs else {}


def _skab(data: Path, seeds: int) -> dict[str, Any]:
    return {folder: skab.table(runs) for folder, runs in score_data.read_skab(data).items()}


def _gearbox(data: Path, seeds: int) -> dict[str, Any]:
    healthy, broken = score_data.read_gearbox(data)
    if len(healthy) < 2 or not broken:
        return {}
    return {"trained on healthy windows of the other loads": gearbox.unseen_loads(healthy, broken)}


def _drives(data: Path, seeds: int) -> dict[str, Any]:
    found = score_data.read_drives(data)
    return {"every second drive trains": drives.table(found)} if len(found) >= MIN_DRIVES else {}


def _fleet(data: Path, seeds: int, months: float) -> dict[str, Any]:
    if not months:
        return {}
    cars = score_fleet.vehicle_months(months, FLEET_SEED, progress)
    progress("fleet: faults on cars")
    faults = score_fleet.car_faults(FLEET_SEED)
    progress("fleet: turbines")
    turbines = score_fleet.turbine_tables(FLEET_SEED)
    return {"cars, healthy": cars, "cars, faults": faults, **turbines}


def _cuts(data: Path, seeds: int) -> dict[str, Any]:
    runs = [run for part in score_data.read_skab(data).values() for run in part]
    series, recorded = score_data.read_nab(data), score_data.read_drives(data)
    if not (runs or series or recorded):
        return {}
    return {"one pass against pieces": cuts.table(series, runs, recorded, CUT_ROWS)}


def _cmapss(data: Path, seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    settings = LifeSettings()
    for subset in score_data.read_cmapss(data):
        prepared, rows = cmapss.Prepared.of(subset), {}
        for seed in range(seeds):
            progress(f"cmapss: {subset.name} seed {seed}")
            rows[f"boosted trees, seed {seed}"] = cmapss.row(prepared, cmapss.model_of(prepared, seed, settings))
        names = list(rows["boosted trees, seed 0"])
        rows["mean over seeds"] = {name: float(np.mean([row[name] for row in rows.values()])) for name in names}
        rows |= {"ridge": cmapss.ridge_row(prepared), "always the mean": cmapss.mean_row(subset)}
        found[subset.name] = {**rows, **cmapss.call_rows(subset, settings)}
    return found
