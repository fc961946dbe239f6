"""The spool as a state machine: everything that happens to it, in any order, on a disk that fills up and loses power.

The model is a dictionary of what was accepted and not freed. Whatever leaves the spool otherwise must stand in its own
list of drops, with its class; crash records never leave it that way.
"""

from __future__ import annotations

import random
import tempfile
from functools import partial
from pathlib import Path

import apsw
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.acks import Ack
from contracts.packet import Lane, decode_packet, is_parcel
from contracts.ranges import Range
from contracts.signals import Retention
from edge_agent.errors import SpoolFullError
from edge_agent.packing import Draft
from edge_agent.spool import Spool
from edge_agent.spool_index import packet_id, split_id
from edge_agent.spool_model import Stored
from edge_agent.spool_open import open_spool
from tests.edge_agent.doubles import NOW_MS, draft, spool_settings
from tests.edge_agent.power_model import Disk, ModelDatabase, ModelVfs, PowerCutError

MAX_BYTES = 65_536
MAX_AGE_MS = 60_000
CLASSES = [Retention.BULK, Retention.STANDARD, Retention.PERSONAL, Retention.SAFETY]
bodies = st.lists(st.tuples(st.sampled_from(CLASSES), st.sampled_from([0, 2_000, 9_000])), min_size=1, max_size=5)


def covers(ranges: list[tuple[int, Range]], identity: int) -> bool:
    epoch, seq = split_id(identity)
    return any(epoch == own and first <= seq <= last for own, (first, last) in ranges)


class SpoolOnABadDisk(RuleBasedStateMachine):
    """``model``: identity to packet; ``freed``: what was ever confirmed or rejected; ``told``: drops ever told."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="fleetstream-machine-")
        self.disk = Disk()
        self.now_ms = NOW_MS
        self.model: dict[int, Stored] = {}
        self.given: set[int] = set()
        self.freed: list[tuple[int, Range]] = []
        self.pending: list[tuple[int, Range]] = []
        self.told: list[tuple[int, int, int]] = []
        self.spool = self.open()

    def open(self) -> Spool:
        self.vfs = ModelVfs(self.disk)
        settings = spool_settings(Path(self.folder.name), max_bytes=MAX_BYTES, max_age_ms=MAX_AGE_MS)
        return open_spool(
            settings, "car-1", "north", self.now_ms, connect=partial(ModelDatabase, vfs=self.vfs.name)
        )  # fmt: skip

    def take(self, drafts: list[Draft], lane: Lane) -> None:
        """Accept; what is accepted has a new identity."""
        packets, _ = self.spool.accept(drafts, lane, self.now_ms)
        for stored in packets:
            assert stored.identity not in self.given, "an identity repeats"
            self.given.add(stored.identity)
            self.model[stored.identity] = stored

    @rule(wanted=bodies, lane=st.sampled_from([Lane.LIVE, Lane.BACKLOG]))
    def put(self, wanted: list[tuple[Retention, int]], lane: Lane) -> None:
        before = self.spool.next_seq
        try:
            self.take([draft(retention, bulk=bulk) for retention, bulk in wanted], lane)
        except SpoolFullError:
            assert self.disk.is_full and self.spool.next_seq == before, "what was not accepted took no number"

    @rule(size=st.integers(1, 9_000))
    def put_crash_record(self, size: int) -> None:
        parcel = Draft(Retention.PRIORITY, self.now_ms, 0, True, 0, parcel=(2, bytes(size)))
        try:
            self.take([parcel], Lane.LIVE)
        except SpoolFullError:
            assert self.disk.is_full

    @rule(lane=st.sampled_from(list(Lane)), limit=st.integers(1, 20))
    def send(self, lane: Lane, limit: int) -> None:
        sent = self.spool.next(lane, 0, limit)
        wanted = sorted(identity for identity, stored in self.model.items() if stored.lane == lane)
        held = [identity for identity in wanted if self.spool.get(identity) is not None]
        assert [stored.identity for stored in sent] == held[:limit]
        assert all(is_parcel(stored.frame) or stored.lane != Lane.PRIORITY or not stored.samples for stored in sent)

    @rule(epoch_back=st.integers(0, 2), first=st.integers(0, 40), length=st.integers(0, 15), rejected=st.booleans())
    def acknowledge(self, epoch_back: int, first: int, length: int, rejected: bool) -> None:
        epoch = self.spool.epoch.boot_epoch - epoch_back
        nonce, given = self.spool.nonce_of(epoch), self.spool.last_given(epoch) or 0
        # the cloud confirms what it was sent, never what is yet to come
        numbers = (first, max(first, min(first + length, given)))
        if first > given:
            return
        ack = Ack(epoch, nonce or 1, () if rejected else (numbers,), (numbers,) if rejected else ())
        assert self.spool.acknowledge(ack) == (nonce is not None)
        if nonce is not None:
            self.freed.append((epoch, numbers))
            self.pending.append((epoch, numbers))

    @rule()
    def apply(self) -> None:
        if self.disk.is_full:
            return
        self.spool.apply_acks()
        for identity in [identity for identity in self.model if covers(self.pending, identity)]:
            assert self.spool.get(identity) is None
            del self.model[identity]
        self.pending = []

    @rule()
    def tell_drops(self) -> None:
        if self.disk.is_full:
            return
        pending = self.pending_drops()
        packets = self.spool.report_drops(Lane.LIVE, self.now_ms, 0)
        told = [
            (split_id(stored.identity)[0], gap.first_seq, gap.last_seq)
            for stored in packets for gap in decode_packet(stored.frame).gaps
        ]  # fmt: skip
        assert sorted(told) == sorted(pending)
        self.told += told
        self.given |= {stored.identity for stored in packets}
        self.model |= {stored.identity: stored for stored in packets}

    @rule(by_ms=st.sampled_from([1_000, -3_600_000, 3_600_000, 365 * 86_400_000, -365 * 86_400_000]))
    def the_clock_jumps(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(full=st.booleans())
    def the_disk_fills_up_or_is_cleared(self, full: bool) -> None:
        self.disk.is_full = full

    @rule()
    def orderly_restart(self) -> None:
        self.disk.is_full = False
        self.spool.close()
        self.spool = self.open()

    @precondition(lambda self: not self.disk.is_full)
    @rule(after=st.integers(0, 25), seed=st.integers(0, 2**16), wanted=bodies)
    def the_power_fails(self, after: int, seed: int, wanted: list[tuple[Retention, int]]) -> None:
        dice = random.Random(seed)
        self.disk.remaining = after
        packets: list[Stored] = []
        try:
            packets, _ = self.spool.accept(
                [draft(retention, bulk=bulk) for retention, bulk in wanted], Lane.LIVE, self.now_ms
            )
        except (PowerCutError, apsw.Error, SpoolFullError):
            assert self.disk.is_dead
        for stored in packets:
            self.given.add(stored.identity)
            self.model[stored.identity] = stored
        self.disk = self.disk.after_cut(dice)
        self.pending = []  # what was not yet applied is forgotten: the packet is sent, and confirmed, once more
        self.spool = self.open()
        for stored in self.spool.all_packets():
            # the commit under way may have survived, though nobody was told
            self.model.setdefault(stored.identity, stored)
            self.given.add(stored.identity)

    def is_freed(self, identity: int) -> bool:
        return covers(self.freed, identity)

    def pending_drops(self) -> list[tuple[int, int, int]]:
        rows = self.spool.database.execute("SELECT boot_epoch, first_seq, last_seq FROM drops")
        return [(int(epoch), int(first), int(last)) for epoch, first, last in rows]

    @invariant()
    def what_left_is_accounted_for(self) -> None:
        held = {stored.identity: stored for stored in self.spool.all_packets()}
        gaps = [*self.told, *self.pending_drops()]
        for identity in self.model.keys() - held.keys():
            stored = self.model.pop(identity)
            dropped = any(packet_id(epoch, first) <= identity <= packet_id(epoch, last) for epoch, first, last in gaps)
            assert dropped or self.is_freed(identity), f"{split_id(identity)} is gone and nobody says why"
            assert stored.retention != Retention.PRIORITY or self.is_freed(identity), "a crash record was dropped"
        assert held == self.model

    @invariant()
    def the_index_counts_what_is_there(self) -> None:
        held = list(self.spool.all_packets())
        assert self.spool.index.total.packets == len(held)
        assert self.spool.index.total.samples == sum(stored.samples for stored in held)
        bounded = [stored for stored in held if stored.retention != Retention.PRIORITY]
        assert sum(len(stored.frame) for stored in bounded) <= MAX_BYTES

    def teardown(self) -> None:
        self.disk.is_full = False
        self.spool.abandon()
        self.folder.cleanup()


TestSpoolOnABadDisk = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")(
    SpoolOnABadDisk.TestCase
)
TestSpoolOnABadDisk.settings = hypothesis_settings(max_examples=30, stateful_step_count=30, deadline=None)
