"""Real drives, jams, ice and emergency stops through the recorder: not one crash record, under any profile.

UN R169 (heavy vehicles) wants more than crashes: hard braking and the last stop are recorded under it, and are told
apart by their triggers. The recordings have no accelerometer: longitudinal acceleration is the slope between two polls
of the speed, fed at 10 readings a second, so what a sensor would say of bumps is not in them. So that the test can
fail, the same drives with their braking made crash-like do give records.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from contracts.edr.profiles import PROFILE_NAMES, load_profile
from contracts.edr.wire import Notice, open_parcel
from contracts.packet import is_parcel
from edge_agent.clock import ManualClock
from edge_agent.recorder.capture import Captured, EventCapture
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.wiring import build_agent
from simulators.crashes.play import simulated_signer
from simulators.kit_obd import Recording, RecordingSource
from tests.edge_agent.doubles import Cloud, agent_settings

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("FLEETSTREAM_DATA", ROOT.parent / "shared" / "data")) / "kit-obd"
FILES = sorted(FOLDER.glob("*.csv.gz"))
STEP_US = 100_000
POLL_ROWS = 10
"""Ten signals are polled in turn: the speed's own turn comes every tenth row."""

DEFAULT, HEAVY = "part563-2024", "un-r169"
BRAKING = {"sustained_deceleration", "last_stop"}
STOPS = [file for file in FILES if "Vollbremsung" in file.name]
HARD = ("Vollbremsung", "Glatteis", "KA_KA_Stau")
"""Recordings that are played under every profile; the long quiet ones under two."""

AROUND_MS = 60_000

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


def records(
    file: Path, profiles: Iterable[str] = (DEFAULT,), exaggerate: float = 1.0, above_mps2: float = 1e9
) -> dict[str, Counter[str]]:
    """By profile: how many records of each trigger. The drive is read once for all of them."""
    settings = RecorderSettings(motion_rate_hz=1_000_000 // STEP_US)
    captures = {name: EventCapture(load_profile(name), settings, 1, 1) for name in profiles}
    captured: dict[str, list[Captured]] = {name: [] for name in captures}
    previous: tuple[int, float] | None = None
    for at_us, speed, rpm, pedal in polls(file):
        slopes: list[tuple[int, float]] = []
        if previous is not None and at_us > previous[0]:
            slope = (speed - previous[1]) / 3.6 / ((at_us - previous[0]) / 1e6)
            slope *= exaggerate if slope < -above_mps2 else 1.0
            slopes = [(moment, slope) for moment in range(previous[0] + STEP_US, at_us, STEP_US)]
        for name, capture in captures.items():
            for moment, slope in slopes:
                captured[name] += capture.on_motion(moment, slope, 0.0, 9.80665)
            for channel, value in (("speed", speed), ("engine_rpm", rpm), ("accelerator", pedal)):
                captured[name] += capture.on_channel(at_us, channel, value)
        previous = (at_us, speed)
    return {
        name: Counter(one.record.trigger for one in [*captured[name], *capture.close()])
        for name, capture in captures.items()
    }


@needs_recordings
@pytest.mark.parametrize("file", FILES, ids=[file.name.removesuffix(".csv.gz") for file in FILES])
def test_a_real_drive_gives_no_crash_record(file: Path) -> None:
    """UN R169 wants records of hard braking and of the last stop too: those, and nothing else."""
    found = records(file, PROFILE_NAMES if any(word in file.name for word in HARD) else (DEFAULT, HEAVY))
    heavy = found.pop(HEAVY)
    assert set(heavy) <= BRAKING and all(not triggers for triggers in found.values()), (found, heavy)
    if "Vollbremsung" in file.name:
        assert heavy["sustained_deceleration"], "an emergency stop is above 3.25 m/s² for 0.7 s"


@needs_recordings
def test_the_same_drive_with_crash_like_braking_does() -> None:
    assert STOPS
    assert records(STOPS[0], exaggerate=4.0, above_mps2=5.0)[DEFAULT]


@needs_recordings
@pytest.mark.parametrize("profile", PROFILE_NAMES)
def test_an_emergency_stop_through_the_agent_is_no_crash(profile: str, tmp_path: Path) -> None:
    """As `fleetstream replay` feeds it: the recording is the agent's source, a minute around the hardest braking."""
    rows, at_ms = hardest_braking(STOPS[0])
    source, clock, cloud = RecordingSource(STOPS[0], 1.0, "all"), ManualClock(at_ms - AROUND_MS), Cloud()
    source.seek(str(rows))
    settings = RecorderSettings.model_validate(
        {"path": tmp_path / "recorder.fsr", "profile": profile, "source": "simulated"}
    )
    agent = build_agent(
        agent_settings(tmp_path, recorder=settings), source, clock, link=cloud, crash_signer=simulated_signer(1)
    )
    agent.start()
    while clock.now_ms() < at_ms + AROUND_MS and not source.finished:
        agent.tick()
        clock.advance(STEP_US // 1_000)
    source.close()
    assert source.rows > rows + 500 and cloud.stored, "the drive went through"
    told = [open_parcel(frame)[1] for frame in cloud.stored.values() if is_parcel(frame)]
    triggers = {message.trigger for message in told if isinstance(message, Notice)}
    assert triggers <= (BRAKING if profile == HEAVY else set()) and bool(told) == bool(triggers)


def hardest_braking(file: Path) -> tuple[int, int]:
    """(rows to leave out, Unix epoch milliseconds of the hardest braking): a minute of driving lies between."""
    recording = Recording(file, "all")
    moments = [at_ms for at_ms, _ in recording]
    recording.close()
    driven = list(polls(file))
    steepest, at_us = min(
        ((after[1] - before[1]) / (after[0] - before[0]), after[0])
        for before, after in pairwise(driven) if after[0] > before[0]
    )  # fmt: skip
    assert steepest < 0
    at_ms = moments[0] + (at_us - driven[0][0]) // 1_000
    return sum(moment < at_ms - AROUND_MS for moment in moments), at_ms
