"""One real crash on a device whose disk writes down every operation; then the power is cut at thousands of instants.

The agent runs once: spool and the recorder's three files lie on one modelled disk, whose operations are logged together
with what the agent had been promised by then (a record kept, a packet accepted, a place released). Each trial replays
the operations up to a random instant, lets a random part of what was not synced survive, starts everything anew and
compares with the promises: the last one before the cut, or the one that was under way.
"""

from __future__ import annotations

import bisect
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import apsw

from contracts.edr.capsule import open_capsule
from contracts.edr.profiles import load_profile
from contracts.edr.verify import verify_export
from contracts.edr.x509 import X509Checks
from contracts.packet import decode_header
from edge_agent import wiring
from edge_agent.errors import SpoolCorruptError, SpoolFullError
from edge_agent.recorder import wiring as recorder_wiring
from edge_agent.recorder.errors import RecorderFileUnusable
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.recorder.store import RecordStore, file_size_bytes
from edge_agent.recorder.wiring import LINKAGE_SLOT_BYTES, SPARE_LINKAGES, build_recorder
from edge_agent.spool import Spool
from edge_agent.spool_open import open_spool
from simulators.crashes.play import simulated_signer
from tests.edge_agent.doubles import NOW_MS, spool_settings
from tests.edge_agent.power_model import Disk, ModelBlockFile, ModelDatabase, ModelVfs, Operation
from tests.edge_agent.power_trials import Result

PULSE = "double"
"""Two impacts: four capsules, two linkages, raw motion of both, and receipts for all at the end."""

PROFILE = load_profile("part563-2024")
CAPSULES, LINKAGES, RAWS = "recorder.fsr", "recorder.linkage", "recorder.raw"
SETTINGS = RecorderSettings(source="simulated")
SHAPES = {
    CAPSULES: (PROFILE.capacity_events, SETTINGS.slot_bytes),
    LINKAGES: (PROFILE.capacity_events + SPARE_LINKAGES, LINKAGE_SLOT_BYTES),
    RAWS: (SETTINGS.raw_events, SETTINGS.raw_slot_bytes),
}
Contents = dict[int, bytes]
"""Record number to payload hash, or packet identity to frame."""


@dataclass
class Promises:
    """What one file held after which operation: ``at[i]`` operations were done when ``states[i]`` was promised."""

    at: list[int] = field(default_factory=lambda: [0])
    states: list[Contents] = field(default_factory=lambda: [{}])

    def add(self, done: int, state: Contents) -> None:
        self.at.append(done)
        self.states.append(state)

    def around(self, cut: int) -> list[Contents]:
        """The last promise that stood before operation ``cut``, and the one that may have been under way."""
        index = bisect.bisect_right(self.at, cut) - 1
        return self.states[index : index + 2]


@dataclass
class Recorded:
    """The run: its operations, the promises, everything that was ever accepted."""

    log: list[Operation]
    promises: dict[str, Promises]
    spool: Promises
    frames: Contents
    begun: int
    """The operations before this one happened long before the crash."""


@cache
def recorded() -> Recorded:
    """One crash, from the agent's start to the receipts."""
    from tests.edge_agent.recorder.test_agent_crash import CrashRig, all_kinds

    disk = Disk()
    log: list[Operation] = []
    disk.log = log
    promises = {name: Promises() for name in SHAPES}
    spool, frames = Promises(), {}
    vfs = ModelVfs(disk)

    def note_store(store: RecordStore) -> None:
        held = {header.record_no: header.sha256 for header in store.live()}
        promises[store._file._name].add(len(log), held)  # type: ignore[attr-defined]

    def note_spool(one: Spool) -> None:
        held = {stored.identity: stored.frame for stored in one.all_packets()}
        frames.update(held)
        spool.add(len(log), held)

    patches = [
        mock.patch.object(wiring, "open_spool", partial(open_spool, connect=partial(ModelDatabase, vfs=vfs.name))),
        mock.patch.object(
            recorder_wiring.build_post, "__defaults__", (None, lambda path, size: ModelBlockFile(disk, path, size))
        ),
        *(_noting(RecordStore, name, note_store) for name in ("put", "mark_delivered", "release")),
        *(_noting(Spool, name, note_spool) for name in ("accept", "apply_acks", "report_drops")),
    ]
    with tempfile.TemporaryDirectory(prefix="fleetstream-crash-") as folder:
        for patch in patches:
            patch.start()
        try:
            rig = CrashRig(Path(folder), PULSE)
            rig.run(1_000)
            begun = len(log)
            rig.run_to_the_end()
            rig.send_receipts(all_kinds(rig))
            rig.run(2_000)
            rig.agent.stop(0)
        finally:
            for patch in patches:
                patch.stop()
    return Recorded(log, promises, spool, frames, begun)


def _noting(owner: type, name: str, note: Callable[[Any], None]) -> Any:
    """A patch that calls ``note`` with the object after each call of its method."""
    method = getattr(owner, name)

    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = method(self, *arguments, **named)
        note(self)
        return answer

    return mock.patch.object(owner, name, noted)


class Replay:
    """The run's disk as it was before an operation; goes forward only, so that cuts are taken in order."""

    def __init__(self, log: list[Operation]) -> None:
        self._log = log
        self._done = 0
        self.disk = Disk()
        for name, (capacity, slot_bytes) in SHAPES.items():
            ModelBlockFile(self.disk, Path(name), file_size_bytes(capacity, slot_bytes))

    def to(self, cut: int) -> Disk:
        while self._done < cut:
            self.disk.do(self._log[self._done])
            self._done += 1
        return self.disk


def crash_trials(trials: int, seed: int, ignores_sync: bool = False) -> Result:
    """Cut ``trials`` times; the same seed cuts at the same instants. ``ignores_sync``: the control that must lose."""
    run, dice, result = recorded(), random.Random(seed), Result()
    replay = Replay(run.log)
    replay.disk.ignores_sync = ignores_sync
    for cut in sorted(dice.randrange(run.begun, len(run.log) + 1) for _ in range(trials)):
        left = replay.to(cut).after_cut(dice)
        result.trials += 1
        result.cuts_in[run.log[cut][1] if cut < len(run.log) else "end"] += 1
        for name in SHAPES:
            _look_at_store(run, left, name, cut, result)
        _look_at_spool(run, left, cut, result)
    return result


def _look_at_store(run: Recorded, left: Disk, name: str, cut: int, result: Result) -> None:
    capacity, slot_bytes = SHAPES[name]
    file = ModelBlockFile(left, Path(name), 0)
    try:
        store = RecordStore(file, capacity, slot_bytes, bytes(16))
        held = {header.record_no: header.sha256 for header in store.live()}
        for header in store.live():
            store.payload(header)
    except RecorderFileUnusable:
        result.corrupt += 1
        return
    allowed = run.promises[name].around(cut)
    if held in allowed:
        pass
    elif any(state.keys() <= held.keys() for state in allowed):
        result.altered += 1
    else:
        result.lost += 1
    if name == CAPSULES:
        recorder = build_recorder(SETTINGS, file, simulated_signer(1), 2, bytes(16))
        result.corrupt += not verify_export(recorder.export(NOW_MS), X509Checks(), NOW_MS).holds
        numbers = [open_capsule(one.capsule).head.place.record_no for one in recorder.undelivered()]
        result.doubled += len(set(numbers)) != len(numbers)


def _look_at_spool(run: Recorded, left: Disk, cut: int, result: Result) -> None:
    vfs = ModelVfs(left)
    with tempfile.TemporaryDirectory(prefix="fleetstream-cut-") as folder:
        try:
            spool = open_spool(
                spool_settings(Path(folder)), "car-1", "north", NOW_MS, connect=partial(ModelDatabase, vfs=vfs.name)
            )
        except (SpoolCorruptError, SpoolFullError, apsw.Error):
            result.corrupt += 1
            return
        held = {stored.identity: stored.frame for stored in spool.all_packets()}
        spool.close()
    allowed = run.spool.around(cut)
    must = set.intersection(*(set(state) for state in allowed))
    may = set.union(*(set(state) for state in allowed))
    result.lost += len(must - held.keys())
    result.doubled += len(held.keys() - may)
    result.altered += sum(run.frames.get(identity) != frame for identity, frame in held.items())
    for identity, frame in held.items():
        header = decode_header(frame)
        result.altered += (header.boot_epoch << 40 | header.seq) != identity
