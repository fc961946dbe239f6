"""The whole agent with a full disk, a full spool, a damaged file: it goes on, and what fell is told."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.packet import decode_packet
from edge_agent.agent import Agent
from tests.edge_agent.rig import Rig


def test_a_full_disk_never_stops_the_acquisition(tmp_path: Path) -> None:
    rig = Rig(tmp_path, spool={"memory_bytes": 20_000})
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(5_000)
    assert rig.agent.spool is not None
    accepted = rig.agent.spool.next_seq - 1
    rig.agent.spool._db.execute("PRAGMA max_page_count = 1")
    block_every_write(rig.agent, True)
    rig.run(120_000)
    assert rig.agent.spool.next_seq - 1 == accepted, "what was never accepted takes no number"
    assert rig.source.told >= 1_200, "the source was read all the time"
    block_every_write(rig.agent, False)
    rig.cloud.acks = True
    rig.cloud.confirm()
    rig.run(30_000)
    status = rig.cloud.statuses[-1]
    assert status.not_accepted_samples > 0
    stored = rig.samples_in_cloud()
    assert abs(stored + status.not_accepted_samples - rig.source.told) <= 150, "every sample is stored or counted"
    rig.agent.stop(0)
    assert rig.samples_in_cloud() + status.not_accepted_samples == rig.source.told


def block_every_write(agent: Agent, blocked: bool) -> None:
    assert agent.spool is not None
    agent.spool._db.execute(f"PRAGMA query_only = {'ON' if blocked else 'OFF'}")
    agent.spool._db.execute(f"PRAGMA max_page_count = {1 if blocked else 1_000_000}")


def test_drops_are_reported_as_gaps_over_the_link(tmp_path: Path) -> None:
    rig = Rig(tmp_path, spool={"max_bytes": 65_536})
    rig.agent.start()
    rig.cloud.cut()
    rig.run(1_200_000)
    assert rig.agent.spool is not None
    dropped = rig.agent.spool.counters.dropped_packets
    assert dropped > 100
    rig.cloud.connect()
    rig.run(60_000)
    packets = [decode_packet(frame) for frame in rig.cloud.stored.values()]
    gaps = [gap for packet in packets for gap in packet.gaps]
    assert sum(gap.packets for gap in gaps) == dropped
    told = {seq for gap in gaps for seq in range(gap.first_seq, gap.last_seq + 1)}
    stored = {seq for _, seq in rig.cloud.stored}
    assert told | stored == set(range(1, max(stored) + 1))
    assert not told & stored
    rig.agent.stop(0)


@pytest.mark.parametrize("damage", ["header", "middle", "garbage"])
def test_a_damaged_file_is_set_aside_and_service_goes_on(tmp_path: Path, damage: str) -> None:
    rig = Rig(tmp_path)
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(60_000)
    rig.agent.stop(0)
    spool = tmp_path / "spool.db"
    content = bytearray(spool.read_bytes())
    if damage == "header":
        content[:100] = b"\0" * 100
    elif damage == "middle":
        content[4_096 * 3 : 4_096 * 4] = b"\xa5" * 4_096
    else:
        content = bytearray(b"not a database at all" * 1_000)
    spool.write_bytes(content)
    again = Rig(tmp_path, clock=rig.clock)
    again.agent.start()
    again.run(20_000)
    again.agent.stop(0)
    assert list(tmp_path.glob("spool.db.damaged-*"))
    assert again.agent.desk.refused == 0
    fresh = {identity for identity in again.cloud.stored if identity[0] == 2}
    assert len(fresh) >= 18
    gaps = [
        gap for identity, frame in again.cloud.stored.items() if identity[0] == 1 for gap in decode_packet(frame).gaps
    ]
    covered = {seq for gap in gaps for seq in range(gap.first_seq, min(gap.last_seq, 10_000) + 1)}
    stored = {seq for epoch, seq in again.cloud.stored if epoch == 1}
    assert {seq for _, seq in rig.history} <= covered | stored


def test_damage_met_while_running_is_healed_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(10_000)
    assert rig.agent.spool is not None
    rig.agent.spool._db.checkpoint()
    raw = sqlite3.connect(tmp_path / "spool.db")
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute("UPDATE sqlite_schema SET rootpage = 999 WHERE name = 'packets'")
    raw.execute("PRAGMA schema_version = 99")
    raw.commit()
    raw.close()
    rig.run(10_000)
    assert rig.agent.spool.epoch.boot_epoch == 2
    rig.cloud.acks = True
    rig.run(20_000)
    assert len([identity for identity in rig.cloud.stored if identity[0] == 2]) >= 10
    rig.agent.stop(0)


def test_rotten_frame_is_not_sent_but_told(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.agent.start()
    rig.cloud.cut()
    rig.run(5_000)
    assert rig.agent.spool is not None
    rig.agent.spool._db.execute(
        "UPDATE packets SET frame = zeroblob(length(frame)) WHERE id = (SELECT min(id) FROM packets)"
    )
    rig.cloud.connect()
    rig.run(20_000)
    gaps = [gap for frame in rig.cloud.stored.values() for gap in decode_packet(frame).gaps]
    assert [(gap.first_seq, gap.last_seq, gap.packets) for gap in gaps] == [(1, 1, 1)]
    rig.agent.stop(0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_really_full_file_system(small_disk: Path) -> None:
    """Another program fills the disk; the agent outlives it, and every sample is stored or accounted for."""
    rig = Rig(small_disk, spool={"memory_bytes": 30_000})
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(30_000)
    hog = small_disk / "hog"
    with hog.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4_096):
            pass
    rig.run(300_000)
    assert rig.source.told > 3_000
    hog.unlink()
    rig.cloud.acks = True
    rig.cloud.confirm()
    rig.run(60_000)
    rig.agent.stop(0)
    assert (small_disk / "spool.reserve").exists(), "the reserve is held back again"
    packets = [decode_packet(frame) for frame in rig.cloud.stored.values()]
    dropped = sum(gap.samples for packet in packets for gap in packet.gaps)
    status = rig.cloud.statuses[-1]
    assert dropped + rig.samples_in_cloud() + status.not_accepted_samples == rig.source.told
    assert {header.seq for header in rig.cloud.headers()} | told_numbers(rig) == set(range(1, status.next_seq))


def told_numbers(rig: Rig) -> set[int]:
    gaps = [gap for frame in rig.cloud.stored.values() for gap in decode_packet(frame).gaps]
    return {seq for gap in gaps for seq in range(gap.first_seq, gap.last_seq + 1)}


def test_a_disk_that_is_full_at_the_start_is_waited_for(small_disk: Path) -> None:
    hog = small_disk / "hog"
    with hog.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4_096):
            pass
    rig = Rig(small_disk)
    rig.agent.start()
    rig.run(5_000)
    assert rig.agent.spool is None
    assert rig.source.told >= 45
    hog.unlink()
    rig.run(10_000)
    rig.agent.stop(0)
    assert rig.samples_in_cloud() == rig.source.told
