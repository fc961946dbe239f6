"""A device under an epoch that is another run's goes on under one of its own, with everything that it still holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.identity import IdentityNotice, encode_notice
from contracts.packet import decode_header, decode_packet
from edge_agent.errors import SpoolFullError
from edge_agent.journal import MOVED, AcceptedPacket, FileJournal, read_journal
from edge_agent.spool_move import disown, endings, move, to_move
from tests.edge_agent.doubles import NOW_MS, draft, spool_at
from tests.edge_agent.rig import Rig

LIVE = 0


class Clone(Rig):
    """Its history drops what moved, as a reader of the journal does; its cloud confirms no contested epoch."""

    def remember(self, packets: Any) -> None:
        for packet in packets:
            name = (packet.boot_epoch, packet.seq)
            if packet.lane == MOVED:
                self.history.pop(name, None)
            else:
                assert self.history.setdefault(name, packet) == packet


def test_all_that_is_held_moves_above_the_highest_known_epoch(tmp_path: Path) -> None:
    rig = Clone(tmp_path, uplink={"resend_ms": 2_000})
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(5_000)
    spool = rig.agent.spool
    assert spool is not None
    samples = sum(packet.samples for packet in rig.history.values())
    rig.cloud.down("identity", encode_notice(IdentityNotice(1, spool.epoch.nonce, 41)))
    rig.run(200)
    rig.cloud.unconfirmed.clear()
    rig.cloud.acks = True
    rig.run(15_000)
    assert spool.index.total.packets <= 1
    last = rig.cloud.statuses[-1]
    assert (last.boot_epoch, last.accepted_samples) == (42, sum(packet.samples for packet in rig.history.values()))
    rig.agent.stop(0)
    assert {epoch for epoch, _ in rig.history} == {42}
    new = {name: frame for name, frame in rig.cloud.stored.items() if name[0] == 42}
    assert new.keys() == rig.history.keys()
    assert sum(decode_header(frame).samples for frame in new.values()) == rig.source.told > samples
    told = [one for one in rig.cloud.answers if one.reason == "identity_changed"]
    assert [one.detail for one in told] == [{"from_epoch": 1, "to_epoch": 42, "highest": 41}]


def test_a_notice_for_another_run_changes_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.agent.start()
    rig.run(1_000)
    spool = rig.agent.spool
    assert spool is not None
    for payload in (encode_notice(IdentityNotice(1, spool.epoch.nonce + 1, 9)), b"", b'{"v":1}', b"\xff"):
        rig.cloud.down("identity", payload)
    rig.run(200)
    assert spool.epoch.boot_epoch == 1
    assert not spool.disowned
    rig.agent.stop(0)


def test_a_restart_in_the_middle_goes_on_moving(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    nonce = spool.epoch.nonce
    stored, _ = spool.accept([draft() for _ in range(450)], LIVE, NOW_MS)  # type: ignore[arg-type]
    assert disown(spool, IdentityNotice(1, nonce, 7))
    assert not disown(spool, IdentityNotice(1, nonce, 7)), "told again"
    assert spool.next(LIVE, 0, 10) == []  # type: ignore[arg-type]
    assert len(move(spool, to_move(spool))) == 200
    spool.close()
    again = spool_at(tmp_path)
    assert again.epoch.boot_epoch == 9
    while old := to_move(again):
        move(again, old)
    bodies = [(decode_packet(one.frame).blocks, decode_header(one.frame)) for one in again.all_packets()]
    assert len(bodies) == 450
    assert {header.boot_epoch for _, header in bodies} == {8, 9}
    assert len({(header.boot_epoch, header.seq) for _, header in bodies}) == 450
    assert sum(one.samples for one in stored) == again.index.total.samples
    again.close()
    third = spool_at(tmp_path)
    assert third.disowned == set(), "nothing is left of it"
    third.close()


def test_a_damaged_frame_is_told_as_dropped_under_the_new_epoch(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    spool.accept([draft(), draft()], LIVE, NOW_MS)  # type: ignore[arg-type]
    spool.database.execute("UPDATE packets SET frame = CAST(x'00' || substr(frame, 2) AS BLOB) WHERE id & 1")
    disown(spool, IdentityNotice(1, spool.epoch.nonce, 5))
    assert len(move(spool, to_move(spool))) == 1
    report = decode_packet(spool.report_drops(LIVE, NOW_MS, 0)[0].frame)  # type: ignore[arg-type]
    assert report.header.boot_epoch == 6
    assert [(gap.packets, gap.samples) for gap in report.gaps] == [(1, 10)]
    numbers = {decode_header(one.frame).seq for one in spool.all_packets()}
    assert numbers | {gap.first_seq for gap in report.gaps} == {1, 2, 3}
    spool.close()


def test_drops_not_yet_told_get_numbers_of_the_new_epoch(tmp_path: Path) -> None:
    spool = spool_at(tmp_path, max_bytes=70_000)
    for _ in range(40):
        spool.accept([draft(bulk=4_000)], LIVE, NOW_MS)  # type: ignore[arg-type]
    dropped = spool.counters.dropped_packets
    assert dropped > 10
    disown(spool, IdentityNotice(1, spool.epoch.nonce, 3))
    while old := to_move(spool):
        move(spool, old)
    report = decode_packet(spool.report_drops(LIVE, NOW_MS, 0)[0].frame)  # type: ignore[arg-type]
    assert report.header.boot_epoch == 4
    assert sum(gap.packets for gap in report.gaps) == dropped
    held = {decode_header(one.frame).seq for one in spool.all_packets()}
    gone = {number for gap in report.gaps for number in range(gap.first_seq, gap.last_seq + 1)}
    assert not held & gone
    assert held | gone == set(range(1, spool.next_seq))
    spool.close()


def test_without_disk_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = spool_at(tmp_path)
    nonce = spool.epoch.nonce

    def full(_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(type(spool._identity), "save", full)
    with pytest.raises(SpoolFullError):
        disown(spool, IdentityNotice(1, nonce, 7))
    assert (spool.epoch.boot_epoch, spool.disowned) == (1, set())
    monkeypatch.undo()
    assert disown(spool, IdentityNotice(1, nonce, 7))
    assert spool.epoch.boot_epoch > 7
    spool.close()


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.sampled_from(["accept", "notice", "move", "reopen"]), min_size=3, max_size=14))
def test_no_reading_is_lost_or_doubled_by_moving(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    folder = tmp_path_factory.mktemp("moves")
    spool, accepted, mark = spool_at(folder), 0, NOW_MS
    for step in steps:
        if step == "accept":
            mark += 1
            spool.accept([draft(base_ms=mark), draft(base_ms=-mark)], LIVE, NOW_MS)  # type: ignore[arg-type]
            accepted += 2
        elif step == "notice":
            disown(spool, IdentityNotice(spool.epoch.boot_epoch, spool.epoch.nonce, spool.epoch.boot_epoch + 2))
        elif step == "move":
            move(spool, to_move(spool))
        else:
            spool.close()
            spool = spool_at(folder)
    headers = [decode_header(one.frame) for one in spool.all_packets()]
    assert len({header.base_ms for header in headers}) == len(headers) == accepted
    assert len({(header.boot_epoch, header.seq) for header in headers}) == accepted
    assert all(header.nonce == spool.nonce_of(header.boot_epoch) for header in headers)
    spool.close()


def test_a_history_ends_the_old_name_and_a_cut_move_tells_it_again(tmp_path: Path) -> None:
    spool = spool_at(tmp_path)
    stored, _ = spool.accept([draft()], LIVE, NOW_MS)  # type: ignore[arg-type]
    entry = AcceptedPacket("car-1", 1, 1, "00", 10, 0)
    journal = FileJournal(tmp_path / "journal")
    journal([entry])
    journal(endings("car-1", stored))
    assert read_journal(tmp_path / "journal") == {}
    journal([entry])
    journal.close()
    assert read_journal(tmp_path / "journal") == {("car-1", 1, 1): entry}
    spool.close()
