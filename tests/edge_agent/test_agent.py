"""The whole agent in ordinary life: sending, freeing, lanes, repeats, restarts, commands."""

from __future__ import annotations

from pathlib import Path

from contracts.commands import Command, encode_command
from contracts.packet import Lane, decode_packet
from contracts.signals import catalogue
from edge_agent.clock import ManualClock
from edge_agent.sources import Reading, ScriptedSource
from tests.edge_agent.doubles import NOW_MS
from tests.edge_agent.rig import Rig

SAFETY_SIGNAL = next(signal.number for signal in catalogue() if signal.retention.name == "SAFETY")


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


def test_receipts_reach_whoever_keeps_them(tmp_path: Path) -> None:
    taken: list[Command] = []
    rig = Rig(tmp_path, on_receipt=taken.append)
    rig.agent.start()
    rig.run(200)
    receipt = Command("r1", "car-1", "edr_receipt", 11, NOW_MS + 60_000, {"sha256": "00"})
    rig.cloud.down("cmd", encode_command(receipt))
    rig.run(200)
    assert taken == [receipt]
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
    rig.run(20_000)
    assert rig.cloud.statuses[-1].strange_messages == 3
    rig.agent.stop(0)


def test_classes_travel_in_their_own_packets(tmp_path: Path) -> None:
    readings = [Reading(number, NOW_MS + n, 1.0) for n in range(20) for number in (1, SAFETY_SIGNAL)]
    rig = Rig(tmp_path, ScriptedSource(readings), sampling={"thin": False})
    rig.agent.start()
    rig.run(3_000)
    signals = [{block.signal for block in decode_packet(frame).blocks} for frame in rig.cloud.stored.values()]
    assert sorted(map(sorted, signals)) == [[1], [SAFETY_SIGNAL]]
    rig.agent.stop(0)
