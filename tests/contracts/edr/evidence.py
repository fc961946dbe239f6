"""Evidence for tests: a small record, real keys, capsules in a chain, an export."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import replace
from functools import cache

from contracts.edr.capsule import NO_PREVIOUS, ChainPlace, Kept, seal
from contracts.edr.export import build_export
from contracts.edr.profiles import load_profile
from contracts.edr.record import ElementValue, EventRecord
from edge_agent.recorder.signing import DeviceSigner, development_signer

PROFILE = load_profile("part563-2012")
RECORDER_ID = bytes(range(16))
NOW_MS = 1_790_000_000_000


@cache
def signer(seed: bytes = b"one", until_year: int = 2040) -> DeviceSigner:
    start, end = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(until_year, 1, 1, tzinfo=dt.UTC)
    return development_signer(seed, start, end)


def record(speed_kmh: int = 50) -> EventRecord:
    """A valid record: two elements recorded, the rest not available."""
    elements = (
        ElementValue("delta_v_longitudinal", tuple(range(0, -26, -1)), 0, 10_000, saturated_from_ms=40),
        ElementValue("speed", (speed_kmh,) * 10 + (None,), -10, 500_000),
    )
    missing = tuple(e.name for e in PROFILE.elements if e.name not in {value.name for value in elements})
    return EventRecord(
        profile=PROFILE.name, profile_version=PROFILE.version, source="simulated", trigger="delta_v",
        time_zero_rule="longitudinal_gate", boot_epoch=3, time_zero_us=123_456_789, trigger_after_us=31_000,
        end_after_us=99_000, event_number=1, since_previous_us=None, ignition_cycle_crash=7, locked=False,
        lock_reason="", acceleration_step_us=2_000, complete=True, elements=elements, not_available=missing,
    )  # fmt: skip


def capsules(count: int, key: DeviceSigner | None = None) -> list[tuple[int, bytes]]:
    """A chain of capsules as a recorder with room for all would make it."""
    made: list[tuple[int, bytes]] = []
    previous = NO_PREVIOUS
    for number in range(1, count + 1):
        kept = tuple(Kept(other, hashlib.sha256(data).digest()) for other, data in made)
        place = ChainPlace(RECORDER_ID, number, previous, kept)
        data = seal(replace(record(40 + number), event_number=1 + number % 2), PROFILE, place, key or signer())
        made.append((number, data))
        previous = hashlib.sha256(data).digest()
    return made


def export(held: list[tuple[int, bytes]], key: DeviceSigner | None = None, scope: str = "all_held") -> bytes:
    return build_export(held, key or signer(), RECORDER_ID, NOW_MS, 9, scope)
