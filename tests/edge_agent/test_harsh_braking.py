"""Harsh braking from the speed alone: the recorded emergency stops are candidates, ordinary drives are not.

The whole set of drives, as a table: ``python -m tests.edge_agent.test_harsh_braking``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.packet import decode_packet
from contracts.signals import catalogue
from edge_agent.clock import ManualClock
from edge_agent.harsh_braking import CANDIDATE, HarshBraking
from edge_agent.settings import DeriveSettings
from edge_agent.sources import Reading, ScriptedSource
from edge_agent.wiring import build_agent
from simulators.kit_obd import Recording
from tests.edge_agent.doubles import NOW_MS, Cloud, agent_settings

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("FLEETSTREAM_DATA", ROOT.parent / "shared" / "data")) / "kit-obd"
FILES = sorted(FOLDER.glob("*.csv.gz"))
LIMIT_MPS2 = 4.0
SPEED = catalogue().by_path("Vehicle.Speed").number
SIGNAL = catalogue().by_path(CANDIDATE).number

needs_recordings = pytest.mark.skipif(not FILES, reason=f"no recordings in {FOLDER}: set FLEETSTREAM_DATA")


def candidates(file: Path, values: str = "all") -> list[Reading]:
    judge = HarshBraking(LIMIT_MPS2, catalogue())
    recording = Recording(file, values)  # type: ignore[arg-type]
    try:
        return [found for _, readings in recording for found in judge.judge(readings)]
    finally:
        recording.close()


def named(part: str) -> Path:
    return next(file for file in FILES if part in file.name)


@needs_recordings
def test_the_recorded_emergency_stop_is_a_candidate() -> None:
    """From 77 km/h to a standstill in 4.4 s, the hardest second with 6.95 m/s²."""
    found = candidates(named("Vollbremsung"))
    assert [reading.value for reading in found] == [6.95]
    assert [r.at_ms for r in candidates(named("Vollbremsung"), "changed")] == [r.at_ms for r in found]


@needs_recordings
@pytest.mark.parametrize("drive", ["KA_KA_Frei", "KA_KA_Normal"])
def test_an_ordinary_drive_has_none(drive: str) -> None:
    assert candidates(named(drive)) == []


@pytest.mark.slow
@needs_recordings
@pytest.mark.parametrize("file", FILES, ids=[file.name.removesuffix(".csv.gz") for file in FILES])
def test_every_drive_has_few(file: Path) -> None:
    found = [reading.value for reading in candidates(file)]
    assert len(found) <= 3
    # on ice the wheels stop before the car does: that drive has one too
    assert bool([value for value in found if value > 6.0]) == ("Vollbremsung" in file.name or "Glatteis" in file.name)


def braking(mps2: float, step_ms: int, phase_ms: int, kmh: float = 100.0, whole: bool = True) -> list[Reading]:
    """Constant speed, three seconds of braking at most, constant again."""
    readings = []
    for at_ms in range(phase_ms, 12_000, step_ms):
        speed = max(0.0, kmh - 3.6 * mps2 * min(3_000, max(0, at_ms - 5_000)) / 1_000)
        readings.append(Reading(SPEED, at_ms, float(round(speed)) if whole else speed))
    return readings


@given(st.floats(4.8, 10.0), st.sampled_from([100, 500, 900, 1_000]), st.integers(0, 99))
def test_a_hard_stop_is_told_once(mps2: float, step_ms: int, phase_ms: int) -> None:
    [found] = HarshBraking(LIMIT_MPS2, catalogue()).judge(braking(mps2, step_ms, phase_ms))
    assert LIMIT_MPS2 <= found.value <= mps2 + 0.7
    assert 5_000 < found.at_ms <= 9_100


@given(st.floats(0.0, 3.3), st.sampled_from([100, 500, 900, 1_000]), st.integers(0, 99))
def test_a_gentle_stop_is_not(mps2: float, step_ms: int, phase_ms: int) -> None:
    assert HarshBraking(LIMIT_MPS2, catalogue()).judge(braking(mps2, step_ms, phase_ms)) == []


def test_a_crash_a_gap_and_a_bad_sensor_are_no_braking() -> None:
    crash = [Reading(SPEED, 0, 60.0), Reading(SPEED, 1_000, 60.1), Reading(SPEED, 2_000, 5.0)]
    gap = [Reading(SPEED, 0, 90.0), Reading(SPEED, 4_000, 10.0)]
    bad = [Reading(SPEED, 0, 60.0), Reading(SPEED, 1_000, 40.0, 64)]
    backwards = [Reading(SPEED, 5_000, 90.0), Reading(SPEED, 4_000, 60.0)]
    for readings in (crash, gap, bad, backwards):
        assert HarshBraking(LIMIT_MPS2, catalogue()).judge(readings) == []


@pytest.mark.parametrize("limit", [None, LIMIT_MPS2])
def test_the_agent_sends_candidates_when_told_to(tmp_path: Path, limit: float | None) -> None:
    clock, cloud = ManualClock(NOW_MS), Cloud()
    readings = [reading._replace(at_ms=NOW_MS + reading.at_ms) for reading in braking(7.0, 1_000, 0)]
    settings = agent_settings(tmp_path, derive=DeriveSettings(harsh_braking_mps2=limit))
    agent = build_agent(settings, ScriptedSource(readings), clock, link=cloud)
    agent.start()
    for _ in range(300):
        agent.tick()
        clock.advance(50)
    agent.stop(0)
    blocks = [block for frame in cloud.stored.values() for block in decode_packet(frame).blocks]
    signal = catalogue().by_number(SIGNAL)
    sent = [signal.from_units(block.base + unit) for block in blocks if block.signal == SIGNAL for unit in block.values]
    assert len(sent) == (0 if limit is None else 1)
    assert all(LIMIT_MPS2 <= value < 8 for value in sent)


if __name__ == "__main__":
    for drive in FILES:
        found = candidates(drive)
        print(f"{drive.name}: {len(found)} {[one.value for one in found]}")
