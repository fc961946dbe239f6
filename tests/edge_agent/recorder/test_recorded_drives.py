"""Real drives, jams, ice and emergency stops through the recorder: not one crash record.

The recordings have no accelerometer: longitudinal acceleration is the slope between two polls of the speed, fed at 10
readings a second. So that the test can fail, the same drives with their braking made crash-like do give records.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.edr.profiles import load_profile
from edge_agent.recorder.capture import EventCapture
from edge_agent.recorder.settings import RecorderSettings

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("FLEETSTREAM_DATA", ROOT.parent / "shared" / "data")) / "kit-obd"
FILES = sorted(FOLDER.glob("*.csv.gz"))
STEP_US = 100_000
POLL_ROWS = 10
"""Ten signals are polled in turn: the speed's own turn comes every tenth row."""

needs_recordings = pytest.mark.skipif(not FILES, reason=f"no recordings in {FOLDER}: set FLEETSTREAM_DATA")


def polls(file: Path) -> Iterator[tuple[int, float, float, float]]:
    """(microseconds, km/h, rpm, accelerator %) at each poll of the speed."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        rows = csv.reader(stream)
        next(rows)
        for number, row in enumerate(rows):
            if number % POLL_ROWS or not (row[3] and row[4] and row[9]):
                continue
            hours, minutes, seconds = row[0].split(":")
            at_us = round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1e6)
            yield at_us, float(row[4]), float(row[3]), float(row[9])


def records(file: Path, exaggerate: float = 1.0, above_mps2: float = 1e9) -> int:
    settings = RecorderSettings(motion_rate_hz=1_000_000 // STEP_US)
    capture = EventCapture(load_profile(settings.profile), settings, 1, 1)
    captured = 0
    previous: tuple[int, float] | None = None
    for at_us, speed, rpm, pedal in polls(file):
        if previous is not None and at_us > previous[0]:
            slope = (speed - previous[1]) / 3.6 / ((at_us - previous[0]) / 1e6)
            slope *= exaggerate if slope < -above_mps2 else 1.0
            for moment in range(previous[0] + STEP_US, at_us, STEP_US):
                captured += len(capture.on_motion(moment, slope, 0.0, 9.80665))
        for name, value in (("speed", speed), ("engine_rpm", rpm), ("accelerator", pedal)):
            captured += len(capture.on_channel(at_us, name, value))
        previous = (at_us, speed)
    return captured + len(capture.close())


@needs_recordings
@pytest.mark.parametrize("file", FILES, ids=[file.name.removesuffix(".csv.gz") for file in FILES])
def test_a_real_drive_gives_no_crash_record(file: Path) -> None:
    assert records(file) == 0


@needs_recordings
def test_the_same_drive_with_crash_like_braking_does() -> None:
    stops = [file for file in FILES if "Vollbremsung" in file.name]
    assert stops
    assert records(stops[0], exaggerate=4.0, above_mps2=5.0) > 0
