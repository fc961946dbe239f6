"""Plays a scenario to the real recorder, over a file in memory, and keeps what it says."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from contracts.edr.capsule import Capsule, open_capsule
from contracts.edr.profiles import load_profile
from edge_agent.recorder.blockfile import BlockFile, MemoryFile
from edge_agent.recorder.recorder import CrashRecorder, Sealed
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.recorder.signing import DeviceSigner, development_signer
from edge_agent.recorder.store import file_size_bytes
from edge_agent.recorder.wiring import build_recorder
from simulators.crashes.scenarios import END_S, Scenario
from simulators.crashes.sensor import Reading, Sensor, readings

CERTIFICATES_FROM: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
CERTIFICATES_TO: Final = dt.datetime(2049, 12, 31, tzinfo=dt.UTC)

BUMPER: Final = Sensor()
"""The sensor of the menu: straight, a little offset, a little noise."""

ASKEW: Final = Sensor(roll_deg=6.0, pitch_deg=-9.0, yaw_deg=32.0, noise_mps2=0.3)
"""Screwed to a bracket."""

SHORT: Final = replace(BUMPER, limit_g=(16.0, 16.0, 16.0))
"""A cheap sensor: it saturates in a real crash."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it: everything sealed on the way, what the file holds in the end, and the recorder itself."""

    recorder: CrashRecorder
    sealed: tuple[Sealed, ...]
    held: tuple[Capsule, ...]


def settings_for(profile: str, sensor: Sensor) -> RecorderSettings:
    """The recorder's settings for this sensor, mounting known."""
    return RecorderSettings(
        profile=profile,  # type: ignore[arg-type]  # a name from outside: pydantic checks it
        source="simulated",
        motion_rate_hz=sensor.rate_hz,
        sensor_limit_g=sensor.limit_g,
        mounting_roll_deg=sensor.roll_deg,
        mounting_pitch_deg=sensor.pitch_deg,
        mounting_yaw_deg=sensor.yaw_deg,
        attach_raw=False,
    )


def simulated_signer(seed: int) -> DeviceSigner:
    """The throw-away key of a simulated device."""
    return development_signer(seed.to_bytes(8, "big"), CERTIFICATES_FROM, CERTIFICATES_TO)


def play(
    scenario: Scenario,
    profile: str,
    seed: int,
    sensor: Sensor = BUMPER,
    file: BlockFile | None = None,
    stream: Iterable[Reading] | None = None,
) -> Played:
    """The whole scenario through a new recorder, over ``file`` when given.

    ``stream``: the readings of this scenario, sensor and seed, when the caller plays them to several recorders.
    """
    settings = settings_for(profile, sensor)
    if file is None:
        file = MemoryFile(file_size_bytes(load_profile(profile).capacity_events, settings.slot_bytes))
    recorder_id = hashlib.sha256(b"simulated recorder" + seed.to_bytes(8, "big")).digest()[:16]
    recorder = build_recorder(settings, file, simulated_signer(seed), 1, recorder_id)
    known = {element.name for element in load_profile(profile).elements}
    sealed: list[Sealed] = []
    for reading in readings(scenario, sensor, seed, END_S) if stream is None else stream:
        sealed += _feed(recorder, reading, known)
    sealed += recorder.close()
    held = tuple(open_capsule(one.capsule) for one in recorder.undelivered())
    return Played(recorder, tuple(sealed), held)


def _feed(recorder: CrashRecorder, reading: Reading, known: set[str]) -> list[Sealed]:
    if isinstance(reading.value, tuple):
        return recorder.on_motion(reading.at_us, *reading.value)
    if reading.name.startswith("restraint:"):
        name = reading.name.removeprefix("restraint:")
        return recorder.on_restraint(reading.at_us, name) if name in known else []
    return recorder.on_channel(reading.at_us, reading.name, reading.value)
