"""A power cut at any instant loses no completed record and leaves no half one that reads as complete."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from contracts.edr.capsule import open_capsule
from contracts.edr.verify import verify_export
from contracts.edr.x509 import X509Checks
from edge_agent.recorder.blockfile import MemoryFile
from edge_agent.recorder.errors import RecorderFull
from edge_agent.recorder.store import RecordStore, file_size_bytes
from edge_agent.recorder.wiring import build_recorder
from simulators.crashes.play import play, settings_for, simulated_signer
from simulators.crashes.scenarios import SCENARIOS
from simulators.crashes.sensor import Sensor
from tests.edge_agent.recorder.power import FailingFile, PowerCut

CAPACITY, SLOT_BYTES = 3, 4_096
CUTS = 4_000
NOW_MS = 1_790_000_000_000


@dataclass
class Ledger:
    """What must be in the file: number -> (payload, locked); ``maybe`` is the outcome of the step under way."""

    held: dict[int, tuple[bytes, bool]] = field(default_factory=dict)
    maybe: dict[int, tuple[bytes, bool]] = field(default_factory=dict)
    last: int = 0
    last_sha256: bytes = bytes(32)
    cycles: int = 0
    cycles_maybe: int = 0


def step(store: RecordStore, ledger: Ledger, generator: random.Random) -> None:
    """One random thing that happens to a recorder; the ledger knows before and after."""
    kind = generator.random()
    numbers = sorted(ledger.held)
    ledger.maybe = dict(ledger.held)
    if kind < 0.15:
        ledger.cycles_maybe = ledger.cycles + 1
        ledger.cycles = store.count_ignition_cycle()
    elif kind < 0.30 and numbers:
        store.mark_delivered(generator.choice(numbers))
    elif 0.40 <= kind < 0.45:
        payload = generator.randbytes(100)
        assert store.spend(payload) == ledger.last + 1
        ledger.last, ledger.last_sha256 = ledger.last + 1, hashlib.sha256(payload).digest()
    elif kind < 0.40 and numbers:
        number = generator.choice(numbers)
        header = next(one for one in store.live() if one.record_no == number)
        if header.delivered and not header.locked:
            del ledger.maybe[number]
        assert store.release(number) == (header.delivered and not header.locked)
    else:
        put(store, ledger, generator)
    ledger.held = dict(ledger.maybe)


def put(store: RecordStore, ledger: Ledger, generator: random.Random) -> None:
    payload = generator.randbytes(generator.randrange(1, 3_000))
    locked = generator.random() < 0.15 and sum(lock for _, lock in ledger.held.values()) < CAPACITY - 1
    numbers = sorted(ledger.held)
    supersedes = generator.choice(numbers) if numbers and generator.random() < 0.2 else 0
    beside = {header.record_no for header in store.plan(supersedes)}
    number = ledger.last + 1
    ledger.maybe = {other: one for other, one in ledger.held.items() if other in beside} | {number: (payload, locked)}
    assert store.put(payload, locked, True, supersedes).record_no == number
    ledger.last, ledger.last_sha256 = number, hashlib.sha256(payload).digest()


def contents(store: RecordStore) -> dict[int, tuple[bytes, bool]]:
    return {header.record_no: (store.payload(header), header.locked) for header in store.live()}


def one_life(seed: int) -> bool:
    """A recorder's life until the power fails, and the look at what is left. Whether the cut hit a step."""
    generator = random.Random(seed)
    data = bytearray(file_size_bytes(CAPACITY, SLOT_BYTES))
    file = FailingFile(data, generator.randrange(1, 90), generator)
    ledger = Ledger()
    hit = False
    recorder_id = seed.to_bytes(16, "big")
    formatted = False
    try:
        store = RecordStore(file, CAPACITY, SLOT_BYTES, recorder_id)
        formatted = True
        for _ in range(16):
            step(store, ledger, generator)
    except PowerCut:
        hit = True
    again = RecordStore(_memory(file.after_the_cut()), CAPACITY, SLOT_BYTES, b"another recorder")
    found = contents(again)
    assert found in (ledger.held, ledger.maybe), f"seed {seed}"
    assert again.ignition_cycles in (ledger.cycles, ledger.cycles_maybe)
    assert again.last_record_no in (ledger.last, ledger.last + 1)
    if again.last_record_no == ledger.last:
        assert again.hash_of(ledger.last) == ledger.last_sha256, "the chain must go on from the newest record"
    assert not formatted or again.recorder_id == recorder_id
    again.put(b"life goes on", False, True)
    return hit


def _memory(data: bytearray) -> MemoryFile:
    file = MemoryFile(0)
    file.data = data
    return file


def test_thousands_of_power_cuts() -> None:
    hits = seed = 0
    while hits < CUTS:
        hits += one_life(seed)
        seed += 1
    assert hits >= 2_000


def test_the_model_can_fail() -> None:
    """A store that trusts the header alone would read a half record: the model does produce such files."""
    broken = 0
    for seed in range(300):
        generator = random.Random(seed)
        file = FailingFile(bytearray(4 * 512), 3, generator)
        try:
            file.write(512, b"\x01" * 1_024)
            file.write(0, b"header")
            file.sync()
        except PowerCut:
            left = file.after_the_cut()
            broken += left[:6] == b"header" and left[512:1_536] != b"\x01" * 1_024
    assert broken > 10


class LoggedFile(MemoryFile):
    """Remembers every write and sync."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.log: list[tuple[int, bytes] | None] = []

    def write(self, offset: int, data: bytes) -> None:
        self.log.append((offset, data))
        super().write(offset, data)

    def sync(self) -> None:
        self.log.append(None)


def test_power_cuts_during_real_crashes_leave_exports_that_hold() -> None:
    profile, sensor = "part563-2024", Sensor()
    settings = settings_for(profile, sensor)
    size = file_size_bytes(2, settings.slot_bytes)
    logged = LoggedFile(size)
    played = play(SCENARIOS["double"], profile, 4, sensor, logged)
    ever = {one.capsule for one in played.sealed}
    seen: set[tuple[int, ...]] = set()
    for trial in range(150):
        generator = random.Random(trial)
        file = FailingFile(bytearray(size), generator.randrange(1, len(logged.log) + 1), generator)
        try:
            for entry in logged.log:
                file.sync() if entry is None else file.write(*entry)
        except PowerCut:
            pass
        recorder = build_recorder(settings, _memory(file.after_the_cut()), simulated_signer(4), 2, bytes(16))
        left = recorder.undelivered()
        assert all(one.capsule in ever for one in left)
        assert verify_export(recorder.export(NOW_MS), X509Checks(), NOW_MS).holds
        seen.add(tuple(open_capsule(one.capsule).head.place.record_no for one in left))
    assert {(), (1,), (1, 2)} <= seen


def test_a_full_file_of_locked_records_refuses() -> None:
    store = RecordStore(MemoryFile(file_size_bytes(2, SLOT_BYTES)), 2, SLOT_BYTES, bytes(16))
    store.put(b"one", True, True)
    store.put(b"two", True, True)
    before = contents(store)
    try:
        store.put(b"three", True, True)
    except RecorderFull as full:
        assert full.reason == "recorder_full"
    else:
        raise AssertionError("a locked record was overwritten")
    assert contents(store) == before
