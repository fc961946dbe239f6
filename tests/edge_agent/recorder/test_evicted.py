"""A capsule that gave way before anybody had it takes its raw motion along; one that was delivered does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contracts.edr.capsule import open_capsule
from contracts.edr.wire import AttachmentPiece, CapsuleParcel, Kind, decode_body
from contracts.signals import catalogue
from edge_agent.packing import Draft
from edge_agent.recorder.blockfile import MemoryFile
from edge_agent.recorder.feed import MOTION, Sample
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.recorder.wiring import build_post
from simulators.crashes.play import simulated_signer

NOW_MS = 1_790_000_000_000
GRAVITY = 9.80665
CRASHES_MS = (1_000, 20_000, 40_000)
STEP_MS = 100


class Impacts:
    """Three frontal impacts of 14 km/h."""

    def __init__(self) -> None:
        self._next_us = 0

    def samples(self, mono_us: int, limit: int) -> Sequence[Sample]:
        taken: list[Sample] = []
        while self._next_us <= mono_us and len(taken) < limit:
            struck = any(0 <= self._next_us - 1_000 * at_ms < 100_000 for at_ms in CRASHES_MS)
            taken.append(Sample(self._next_us, MOTION, (-40.0 if struck else 0.0, 0.0, GRAVITY)))
            self._next_us += 10_000
        return taken


def raw_offered(delivered: bool) -> list[int]:
    """Which capsules' raw motion is offered two hours after three crashes in a recorder for two, without a spool."""
    settings = RecorderSettings(path=Path("r.fsr"), profile="part563-2024", motion_rate_hz=100)
    post = build_post(
        settings, catalogue(), Impacts(), NOW_MS, simulated_signer(1), lambda path, size_bytes: MemoryFile(size_bytes)
    )
    for mono_ms in range(0, 50_000, STEP_MS):
        post.watch(mono_ms, NOW_MS + mono_ms, True)
        for message in opened(post.drafts(mono_ms, NOW_MS + mono_ms, True, lambda _: False, True)):
            if delivered and isinstance(message, CapsuleParcel):
                post._keeping.receipt((message.event_id, open_capsule(message.capsule).sha256))
    offered: set[int] = set()
    for mono_ms in (7_200_000, 14_400_000):
        late = opened(post.drafts(mono_ms, NOW_MS + mono_ms, True, lambda _: False, True))
        offered = {message.record_no for message in late if isinstance(message, AttachmentPiece)}
    return sorted(offered)


def opened(drafts: list[Draft]) -> list[object]:
    return [decode_body(Kind(draft.parcel[0]), draft.parcel[1]) for draft in drafts if draft.parcel is not None]


def test_raw_motion_goes_with_its_evicted_capsule() -> None:
    assert raw_offered(delivered=False) == [2, 3]


def test_raw_motion_of_a_delivered_capsule_is_offered_until_its_own_receipt() -> None:
    assert raw_offered(delivered=True) == [1, 2, 3]
