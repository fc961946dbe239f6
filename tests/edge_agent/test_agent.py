"""The whole agent on a real spool file, with the cloud in memory and the clock moved by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contracts.commands import Command, encode_command
from contracts.packet import Lane, decode_packet
from contracts.signals import catalogue
from edge_agent.agent import Agent
from edge_agent.clock import ManualClock
from edge_agent.journal import AcceptedPacket
from edge_agent.sources import Reading, ScriptedSource
from edge_agent.wiring import build_agent
from tests.edge_agent.doubles import NOW_MS, Cloud, agent_settings

SAFETY_SIGNAL = next(signal.number for signal in catalogue() if signal.retention.name == "SAFETY")


class Sensor:
    """Never ends, cannot wait: one reading of signal 1 every 100 ms."""

    can_wait = False
    cursor: str | None = None
    finished = False

    def __init__(self) -> None:
        self.told = 0

    def seek(self, cursor: str) -> None:
        """A sensor has no past."""

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        wanted = (now_ms - NOW_MS) // 100
        readings = [Reading(1, NOW_MS + n * 100, float(n % 200)) for n in range(self.told, wanted)]
        self.told = max(self.told, wanted)
        return readings

    def close(self) -> None:
        """Nothing to give back."""


class Rig:
    """An agent, its cloud, its clock and its history."""

    def __init__(self, folder: Path, source: Any = None, clock: ManualClock | None = None, **parts: Any) -> None:
        self.clock = clock or ManualClock(NOW_MS)
        self.cloud = Cloud()
        self.source = source or Sensor()
        self.history: dict[tuple[int, int], AcceptedPacket] = {}
        self.agent: Agent = build_agent(
            agent_settings(folder, **parts), self.source, self.clock, self.remember, link=self.cloud
        )

    def remember(self, packets: Sequence[AcceptedPacket]) -> None:
        for packet in packets:
            assert self.history.setdefault((packet.boot_epoch, packet.seq), packet) == packet

    def run(self, for_ms: int) -> None:
        for _ in range(for_ms // 50):
            self.agent.tick()
            self.clock.advance(50)

    def samples_in_cloud(self) -> int:
        return sum(decode_packet(frame).header.samples for frame in self.cloud.stored.values())


def test_a_reading_travels_and_is_freed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.agent.start()
    rig.run(10_000)
    rig.agent.stop(0)
    assert rig.samples_in_cloud() == sum(packet.samples for packet in rig.history.values()) == rig.source.told
    assert {channel for channel, _, _ in rig.cloud.published} == {"live"}
    last = rig.cloud.statuses[-1]
    assert (last.next_seq - 1, last.accepted_samples) == (len(rig.history), rig.source.told)


def test_nothing_is_published_before_it_is_in_the_history(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    publish = rig.cloud.publish

    def checked(channel: str, payload: bytes, ask_ack: bool) -> tuple[int, int] | None:
        if channel != "status":
            header = decode_packet(payload).header
            assert (header.boot_epoch, header.seq) in rig.history
        return publish(channel, payload, ask_ack)

    rig.cloud.publish = checked  # type: ignore[method-assign]
    rig.agent.start()
    rig.run(3_000)
    rig.agent.stop(0)
    assert rig.cloud.stored


def test_without_a_link_packets_go_to_the_backlog_and_come_after_living_data(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.agent.start()
    rig.cloud.cut()
    rig.run(20_000)
    assert not rig.cloud.published
    rig.cloud.connect()
    rig.run(20_000)
    lanes = [header.lane for header in rig.cloud.headers()]
    assert lanes.count(Lane.BACKLOG) >= 18
    assert lanes.count(Lane.LIVE) >= 18
    assert len(rig.cloud.stored) == len(rig.history)
    rig.agent.stop(0)


def test_pubacked_is_not_safe_it_is_sent_again_until_the_gateway_confirms(tmp_path: Path) -> None:
    rig = Rig(tmp_path, uplink={"resend_ms": 2_000})
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(10_000)
    assert rig.agent.spool is not None
    assert rig.agent.spool.index.total.packets == len(rig.history)
    headers = rig.cloud.headers()
    assert len(headers) > len({header.seq for header in headers})
    rig.cloud.acks = True
    rig.cloud.confirm()
    rig.run(3_000)
    assert rig.agent.spool.index.total.packets <= 1
    rig.agent.stop(0)


def test_a_lost_broker_session_means_everything_again_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(5_000)
    sent = len(rig.cloud.published)
    rig.cloud.cut()
    rig.run(100)
    rig.cloud.connect(session_present=False)
    rig.run(200)
    assert len(rig.cloud.published) >= 2 * sent
    rig.agent.stop(0)


def test_a_dead_gateway_turns_new_packets_to_the_backlog(tmp_path: Path) -> None:
    rig = Rig(tmp_path, uplink={"window": 10, "live_unsent": 5})
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(40_000)
    lanes = [packet.lane for packet in rig.history.values()]
    assert lanes.count(Lane.LIVE) <= 10 + 5 + 1
    assert lanes.count(Lane.BACKLOG) >= 20
    rig.cloud.acks = True
    rig.cloud.confirm()
    rig.run(40_000)
    assert len(rig.cloud.stored) >= len(rig.history) - 1
    assert [packet.lane for packet in rig.history.values()][-1] == Lane.LIVE
    rig.agent.stop(0)


def test_an_unregistered_device_keeps_everything_and_is_not_loud(tmp_path: Path) -> None:
    rig = Rig(tmp_path, uplink={"window": 10, "live_unsent": 5})
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(600_000)
    assert rig.agent.spool is not None
    assert rig.agent.spool.index.total.packets == len(rig.history)
    assert len(rig.cloud.published) < 300
    rig.agent.stop(0)


def test_refused_publishes_are_counted_and_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.cloud.puback_code = 0x87
    rig.agent.start()
    rig.run(12_000)
    assert rig.cloud.statuses[-1].refused_publishes > 0
    rig.cloud.puback_code = 0
    rig.run(60_000)
    assert len(rig.cloud.stored) >= len(rig.history) - 1
    rig.agent.stop(0)


def test_acknowledgements_are_asked_for_by_count_and_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path, uplink={"ack_ms": 5_000, "ack_packets": 50})
    rig.agent.start()
    rig.run(30_000)
    asked = [asks for _, _, asks in rig.cloud.published]
    assert 4 <= sum(asked) <= 8
    rig.agent.stop(0)


def test_a_killed_agent_journals_what_its_spool_holds(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(5_000)
    assert rig.agent.spool is not None
    rig.agent.spool.abandon()
    again = Rig(tmp_path, clock=rig.clock)
    again.agent.start()
    assert again.history == rig.history
    again.run(3_000)
    assert rig.history.keys() <= again.cloud.stored.keys()
    again.agent.stop(0)


def test_a_recording_continues_at_its_cursor(tmp_path: Path) -> None:
    readings = [Reading(1, NOW_MS + n * 10, float(n)) for n in range(3_000)]
    clock = ManualClock(NOW_MS)
    cloud: dict[tuple[int, int], bytes] = {}
    for _ in range(4):
        rig = Rig(tmp_path, ScriptedSource(readings), clock, sampling={"thin": False})
        rig.agent.start()
        rig.run(8_030)
        cloud.update(rig.cloud.stored)
        assert rig.agent.spool is not None
        rig.agent.spool.abandon()
    last = Rig(tmp_path, ScriptedSource(readings), clock, sampling={"thin": False})
    last.agent.start()
    last.run(5_000)
    assert last.agent.done
    last.agent.stop(0)
    cloud.update(last.cloud.stored)
    offsets = [
        packet.header.base_ms + offset
        for packet in map(decode_packet, cloud.values()) for block in packet.blocks for offset in block.offsets_ms
    ]  # fmt: skip
    assert sorted(offsets) == [reading.at_ms for reading in readings]


def test_a_recording_waits_for_a_full_spool(tmp_path: Path) -> None:
    readings = [Reading(1, NOW_MS, float(n % 300)) for n in range(60_000)]
    rig = Rig(tmp_path, ScriptedSource(readings), spool={"max_bytes": 65_536}, sampling={"thin": False})
    rig.agent.start()
    rig.cloud.cut()
    rig.run(60_000)
    assert not rig.source.finished
    rig.cloud.connect()
    rig.run(60_000)
    assert rig.agent.done
    assert rig.samples_in_cloud() == len(readings)
    rig.agent.stop(0)


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


def test_commands_are_obeyed_once_and_not_after_their_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.agent.start()
    rig.run(500)
    before = len(rig.cloud.statuses)
    ping = Command("c1", "car-1", "ping", 7, NOW_MS + 60_000)
    for payload in (encode_command(ping), encode_command(ping), b"{}", b"\xff"):
        rig.cloud.down("cmd", payload)
    rig.cloud.down("cmd", encode_command(Command("c2", "car-2", "ping", 8, NOW_MS + 60_000)))
    rig.cloud.down("cmd", encode_command(Command("c3", "car-1", "ping", 9, NOW_MS - 1)))
    rig.run(500)
    assert len(rig.cloud.statuses) == before + 1
    assert (rig.agent.desk.done, rig.agent.desk.refused) == (1, 5)
    rig.agent.stop(0)


def test_resync_sends_again_what_is_not_confirmed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(3_000)
    sent = len(rig.cloud.published)
    rig.cloud.down("cmd", encode_command(Command("c1", "car-1", "resync", 7, NOW_MS + 60_000)))
    rig.run(100)
    assert len(rig.cloud.published) >= 2 * sent
    rig.agent.stop(0)


def test_strange_messages_change_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(3_000)
    for payload in (b"", b"[]", b'{"v":1,"epoch":1,"nonce":0,"ok":[[1,99]],"no":[]}', b"\0" * 9):
        rig.cloud.down("ack", payload)
    rig.cloud.down("else", b"x")
    rig.run(2_000)
    assert rig.agent.spool is not None
    assert rig.agent.spool.index.total.packets == len(rig.history)
    rig.agent.stop(0)


def test_classes_travel_in_their_own_packets(tmp_path: Path) -> None:
    readings = [Reading(number, NOW_MS + n, 1.0) for n in range(20) for number in (1, SAFETY_SIGNAL)]
    rig = Rig(tmp_path, ScriptedSource(readings), sampling={"thin": False})
    rig.agent.start()
    rig.run(3_000)
    signals = [{block.signal for block in decode_packet(frame).blocks} for frame in rig.cloud.stored.values()]
    assert sorted(map(sorted, signals)) == [[1], [SAFETY_SIGNAL]]
    rig.agent.stop(0)
