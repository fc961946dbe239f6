"""The spool on real SQLite files: identities, freeing, bounds, and what a transaction that fails leaves behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.acks import Ack
from contracts.packet import DropReason, Lane, decode_header, decode_packet
from contracts.ranges import Range
from contracts.signals import Retention
from edge_agent.errors import SpoolFullError
from edge_agent.identity import read_identity
from edge_agent.spool import EXPIRY_CHECK_COMMITS, MAX_FREES, Spool
from edge_agent.spool_index import split_id
from tests.edge_agent.doubles import NOW_MS, draft, spool_at


def ack(spool: Spool, *confirmed: Range, rejected: tuple[Range, ...] = ()) -> None:
    assert spool.acknowledge(Ack(spool.epoch.boot_epoch, spool.epoch.nonce, confirmed, rejected))


def held(spool: Spool) -> list[tuple[int, int]]:
    return [split_id(stored.identity) for stored in spool.all_packets()]


def test_identities_are_consecutive_and_stand_in_the_frame(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    packets, refused = spool.accept([draft(), draft()], Lane.LIVE, NOW_MS)
    more, _ = spool.accept([draft()], Lane.BACKLOG, NOW_MS)
    assert not refused
    assert [split_id(stored.identity) for stored in [*packets, *more]] == [(1, 1), (1, 2), (1, 3)]
    headers = [decode_header(stored.frame) for stored in spool.all_packets()]
    assert [(h.device, h.tenant, h.boot_epoch, h.nonce, h.seq, h.lane) for h in headers] == [
        ("car-1", "north", 1, spool.epoch.nonce, seq, lane) for seq, lane in ((1, 0), (2, 0), (3, 1))
    ]
    spool.close()


def test_every_start_is_a_new_epoch_and_old_packets_keep_theirs(tmp_path: Path) -> None:
    first = spool_at(tmp_path)
    [stored], _ = first.accept([draft()], Lane.LIVE, NOW_MS)
    first.close()
    second = spool_at(tmp_path)
    second.accept([draft()], Lane.LIVE, NOW_MS)
    assert held(second) == [(1, 1), (2, 1)]
    assert second.get(stored.identity) == stored
    assert second.epoch.nonce != first.epoch.nonce
    assert second.acknowledge(Ack(1, first.epoch.nonce, ((1, 1),)))
    second.apply_acks()
    assert held(second) == [(2, 1)]
    second.close()


def test_an_epoch_never_repeats_even_without_the_spool_file(tmp_path: Path) -> None:
    first = spool_at(tmp_path)
    first.close()
    (tmp_path / "spool.db").unlink()
    second = spool_at(tmp_path)
    assert second.epoch.boot_epoch == 2
    second.close()
    (tmp_path / "spool.identity").write_text("{")
    third = spool_at(tmp_path)
    assert third.epoch.boot_epoch == 3
    third.close()


def test_an_acknowledgement_for_another_nonce_frees_nothing(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    spool.accept([draft()], Lane.LIVE, NOW_MS)
    assert not spool.acknowledge(Ack(1, spool.epoch.nonce + 1, ((1, 1),)))
    assert not spool.acknowledge(Ack(9, spool.epoch.nonce, ((1, 1),)))
    spool.apply_acks()
    assert held(spool) == [(1, 1)]
    assert spool.counters.strange_acks == 2
    spool.close()


def test_rejected_packets_are_freed_and_kept_in_mind(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    spool.accept([draft() for _ in range(5)], Lane.LIVE, NOW_MS)
    ack(spool, (1, 2), rejected=((4, 99),))
    spool.apply_acks()
    assert held(spool) == [(1, 3)]
    assert (spool.counters.acked_packets, spool.counters.rejected_packets) == (2, 2)
    assert spool._db.execute("SELECT boot_epoch, first_seq, last_seq, packets FROM rejected") == [(1, 4, 99, 2)]
    spool.close()


def test_the_cursor_moves_with_the_packets(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    spool.accept([draft()], Lane.LIVE, NOW_MS, cursor="17")
    spool._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(SpoolFullError):
        spool.accept([draft(bulk=60_000)], Lane.LIVE, NOW_MS, cursor="18", may_evict=False)
    spool._db.execute("PRAGMA max_page_count = 100000")
    assert spool.cursor == "17"
    spool.close()
    again = spool_at(tmp_path)
    assert again.cursor == "17"
    again.close()


def test_a_failed_commit_uses_no_number(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    spool.accept([draft()], Lane.LIVE, NOW_MS)
    pages = spool._db.execute("PRAGMA page_count")[0][0]
    spool._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(SpoolFullError):
        spool.accept([draft(bulk=60_000)], Lane.LIVE, NOW_MS, may_evict=False)
    assert spool.next_seq == 2
    assert held(spool) == [(1, 1)]
    assert spool.index.total.packets == 1
    spool._db.execute("PRAGMA max_page_count = 100000")
    [stored], _ = spool.accept([draft(bulk=60_000)], Lane.LIVE, NOW_MS)
    assert split_id(stored.identity) == (1, 2)
    spool.close()


def test_a_full_disk_lets_older_packets_fall_in_the_same_transaction(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    spool.accept([draft(bulk=40_000) for _ in range(4)], Lane.LIVE, NOW_MS)
    pages = spool._db.execute("PRAGMA page_count")[0][0]
    spool._db.execute(f"PRAGMA max_page_count = {pages}")
    packets, _ = spool.accept([draft(Retention.SAFETY, bulk=40_000)], Lane.LIVE, NOW_MS)
    assert [split_id(stored.identity) for stored in packets] == [(1, 5)]
    assert held(spool)[0] != (1, 1)
    assert spool.unreported_drops
    assert spool.counters.dropped_packets >= 1
    reasons = spool._db.execute("SELECT DISTINCT reason FROM drops")
    assert reasons == [(int(DropReason.DISK_FULL),)]
    spool.close()


def test_the_lowest_class_falls_first_and_priority_never(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, max_bytes=220_000)
    order = [Retention.PRIORITY, Retention.SAFETY, Retention.STANDARD, Retention.BULK]
    for retention in order:
        spool.accept([draft(retention, bulk=16_000) for _ in range(3)], Lane.LIVE, NOW_MS)
    for retention in (Retention.STANDARD, Retention.SAFETY):
        spool.accept([draft(retention, bulk=16_000) for _ in range(4)], Lane.LIVE, NOW_MS)
    kept = [stored.retention for stored in spool.all_packets()]
    assert kept.count(Retention.PRIORITY) == 3
    assert kept.count(Retention.BULK) == 0
    assert kept.count(Retention.SAFETY) == 7
    assert spool.index.total.size_bytes <= 220_000
    _, refused = spool.accept([draft(Retention.BULK, bulk=16_000) for _ in range(9)], Lane.LIVE, NOW_MS)
    assert refused, "a lower class never pushes a higher one out"
    crash, _ = spool.accept([draft(Retention.PRIORITY, bulk=100_000)], Lane.LIVE, NOW_MS)
    assert crash[0].lane == Lane.PRIORITY
    spool.close()


def test_age_drops_what_a_trusted_clock_dated(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, max_age_ms=10_000)
    spool.accept([draft()], Lane.LIVE, NOW_MS)
    spool.accept([draft()], Lane.LIVE, 0)
    for _ in range(EXPIRY_CHECK_COMMITS):
        spool.accept([draft()], Lane.LIVE, NOW_MS + 10_001)
    assert held(spool)[0] == (1, 2)
    assert spool._db.execute("SELECT first_seq, last_seq, reason FROM drops") == [(1, 1, int(DropReason.SPOOL_AGE))]
    spool.close()


def test_drops_are_told_in_a_packet_of_the_epoch_that_lost_them(tmp_path: Path) -> None:
    first = spool_at(tmp_path)
    first.accept([draft(bulk=20_000) for _ in range(4)], Lane.BACKLOG, NOW_MS)
    first.close()
    spool = spool_at(tmp_path, max_bytes=65_536)
    spool.accept([draft(bulk=20_000) for _ in range(3)], Lane.LIVE, NOW_MS)
    lost = {(1, seq) for seq in range(1, 5)} - set(held(spool))
    assert lost
    spool.close()
    spool = spool_at(tmp_path, max_bytes=65_536)
    told = spool.report_drops(Lane.LIVE, NOW_MS, 0)
    packet = decode_packet(told[0].frame)
    assert (packet.header.boot_epoch, packet.header.seq, packet.header.nonce) == (1, 5, first.epoch.nonce)
    told_lost = {(1, seq) for gap in packet.gaps for seq in range(gap.first_seq, gap.last_seq + 1)}
    assert told_lost == lost
    assert not spool.unreported_drops
    assert spool._db.execute("SELECT count(*) FROM drops") == [(0,)]
    spool.close()


def test_many_scattered_drops_stay_bounded_and_exact_in_number(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, max_bytes=400_000)
    for _ in range(300):
        spool.accept([draft(Retention.BULK, samples=2), draft(Retention.SAFETY, samples=2)] * 10, Lane.BACKLOG, NOW_MS)
    rows = spool._db.execute("SELECT count(*), sum(packets) FROM drops")[0]
    assert rows[0] <= 2_000
    assert rows[1] == spool.counters.dropped_packets > 2_000
    [told] = spool.report_drops(Lane.LIVE, NOW_MS, 0)
    gaps = decode_packet(told.frame).gaps
    assert sum(gap.packets for gap in gaps) == rows[1]
    kept = {seq for _, seq in held(spool)}
    gone = set(range(1, spool.next_seq)) - kept
    assert all(any(gap.first_seq <= seq <= gap.last_seq for gap in gaps) for seq in gone)
    spool.close()


def test_the_reserve_of_numbers_is_raised_before_it_is_used_up(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    spool._last_seq[1] = 99_999
    spool.accept([draft() for _ in range(3)], Lane.LIVE, NOW_MS)
    assert read_identity(tmp_path / "spool.identity").epochs[1].reserved_seq > spool.next_seq
    spool.close()


def test_a_long_confirmation_is_worked_off_in_pieces(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    spool.accept([draft(samples=1) for _ in range(7_000)], Lane.BACKLOG, NOW_MS)
    ack(spool, (1, 6_999))
    pieces = 0
    while spool.has_pending_acks:
        before = spool.index.total.packets
        spool.apply_acks()
        assert 0 < before - spool.index.total.packets <= MAX_FREES + 1_024
        spool.discard_damaged(next(iter(spool.all_packets())))
        pieces += 1
    assert pieces > 2
    assert held(spool) == [(1, 7_000)]
    assert spool.counters.acked_packets == 6_999
    spool.close()


class SpoolMachine(RuleBasedStateMachine):
    """Accept, acknowledge, reject, fail and restart in any order, against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.spool = spool_at(Path(self.folder.name))
        self.model: dict[int, bytes] = {}
        self.pending: list[tuple[int, Range]] = []
        self.accepted: set[int] = set()

    @rule(lanes=st.lists(st.sampled_from([Lane.LIVE, Lane.BACKLOG]), min_size=1, max_size=3), count=st.integers(1, 5))
    def accept(self, lanes: list[Lane], count: int) -> None:
        for lane in lanes:
            packets, _ = self.spool.accept([draft() for _ in range(count)], lane, NOW_MS)
            self.apply()
            for stored in packets:
                assert stored.identity not in self.accepted, "an identity is used once"
                self.accepted.add(stored.identity)
                self.model[stored.identity] = stored.frame

    @rule(first=st.integers(1, 30), length=st.integers(0, 10), epoch_back=st.integers(0, 2))
    def acknowledge(self, first: int, length: int, epoch_back: int) -> None:
        epoch = self.spool.epoch.boot_epoch - epoch_back
        wanted = (first, first + length)
        if self.spool.acknowledge(Ack(epoch, self.spool._nonces.get(epoch, 0), (wanted,))):
            self.pending.append((epoch, wanted))

    @precondition(lambda self: self.pending)
    @rule()
    def apply_now(self) -> None:
        self.spool.apply_acks()
        self.apply()

    def apply(self) -> None:
        for epoch, (first, last) in self.pending:
            for identity in list(self.model):
                own_epoch, seq = split_id(identity)
                if own_epoch == epoch and first <= seq <= last:
                    del self.model[identity]
        self.pending = []

    @rule()
    def fail(self) -> None:
        before = self.spool.next_seq
        self.spool._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(SpoolFullError):
            self.spool.accept([draft(bulk=80_000)], Lane.LIVE, NOW_MS, may_evict=False)
        self.spool._db.execute("PRAGMA max_page_count = 1000000")
        assert self.spool.next_seq == before

    @rule(orderly=st.booleans())
    def restart(self, orderly: bool) -> None:
        if orderly:
            self.spool.close()
            self.apply()
        else:
            self.spool.abandon()
            self.pending = []
        self.spool = spool_at(Path(self.folder.name))

    @invariant()
    def holds_exactly_the_model(self) -> None:
        kept = {stored.identity: stored.frame for stored in self.spool.all_packets()}
        assert kept == self.model
        assert self.spool.index.total.packets == len(self.model)
        for lane in Lane:
            walked = [stored.identity for stored in self.spool.next(lane, 0, 10_000)]
            assert walked == sorted(i for i, frame in self.model.items() if decode_header(frame).lane == lane)
            assert self.spool.index.lane_packets(lane) == len(walked)

    def teardown(self) -> None:
        self.spool.close()
        self.folder.cleanup()


TestSpool = SpoolMachine.TestCase
TestSpool.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
