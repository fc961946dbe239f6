"""Commands on the device: once, over restarts too, never after their time, always answered; snapshots and resyncs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.command_menu import MAX_LIFE_MS
from contracts.commands import Answer, Command, Outcome, encode_command
from contracts.errors import Rejected
from contracts.limits import MAX_FUTURE_MS
from contracts.packet import Lane, Quality, decode_packet
from contracts.signals import catalogue
from edge_agent.command_memory import MAX_DECLINED, MAX_REMEMBERED, CommandMemory, Entry, read_memory
from edge_agent.commands import CommandDesk, Done
from edge_agent.outage import Absence
from edge_agent.sampling import Sampler
from edge_agent.settings import SamplingSettings
from edge_agent.sources import Reading
from tests.edge_agent.doubles import NOW_MS
from tests.edge_agent.rig import Rig

LATER = NOW_MS + 3_600_000


def command(kind: str, nonce: int, expires_ms: int = LATER, **arguments: Any) -> bytes:
    return encode_command(Command(f"c{nonce}", "car-1", kind, nonce, expires_ms, arguments))


def outcomes(rig: Rig) -> list[tuple[str, str, str]]:
    return [(one.command_id, one.outcome.value, one.reason) for one in rig.cloud.answers]


def test_every_command_is_answered_and_a_repeat_gets_the_same_answer(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.agent.start()
    rig.run(500)
    sent = [command("ping", 1), command("ping", 1), command("dance", 2), command("ping", 3, NOW_MS - 1)]
    for payload in (*sent, command("ping", 4, n=1), command("flush", 5), command("ping", 6, NOW_MS + 2 * MAX_LIFE_MS)):
        rig.cloud.down("cmd", payload)
    before = len(rig.cloud.statuses)
    rig.run(500)
    assert outcomes(rig) == [
        ("c1", "done", ""), ("c1", "done", ""), ("c2", "refused", "unknown_kind"), ("c3", "expired", ""),
        ("c4", "refused", "bad_arguments"), ("c5", "done", ""), ("c6", "refused", "bad_expiry"),
    ]  # fmt: skip
    assert rig.cloud.answers[0] == rig.cloud.answers[1]
    assert len(rig.cloud.statuses) == before + 1
    rig.agent.stop(0)


def test_a_restart_forgets_no_command_and_keeps_the_profile(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.agent.start()
    rig.run(500)
    setting = command("sampling", 1, profile="interval", min_interval_ms=1_000)
    rig.cloud.down("cmd", setting)
    rig.run(500)
    rig.agent.stop(0)
    again = Rig(tmp_path, clock=rig.clock)
    again.source.told = rig.source.told
    again.agent.start()
    again.run(100)
    again.cloud.down("cmd", setting)
    again.run(10_000)
    assert outcomes(again) == [("c1", "done", "")]
    assert again.agent.desk.done == 0
    kept = sum(decode_packet(frame).header.samples for (epoch, _), frame in again.cloud.stored.items() if epoch == 2)
    assert 9 <= kept <= 11, "one reading a second, of ten"
    again.cloud.down("cmd", command("sampling", 2, profile="configured"))
    again.run(2_000)
    assert again.samples_in_cloud() - kept >= 14, "every one of them again"
    again.agent.stop(0)


def test_cut_off_at_work_it_is_unknown_and_never_done_again(tmp_path: Path) -> None:
    """The nonce is written down before the work: what a power cut leaves behind is told as it is."""
    done: list[Command] = []
    path = tmp_path / "memory"

    def cut(one: Command) -> Done:
        done.append(one)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CommandDesk("car-1", {"ping": cut}, read_memory(path)).take(command("ping", 1), NOW_MS, True)
    desk = CommandDesk("car-1", {"ping": cut}, read_memory(path))
    assert not desk.take(command("ping", 1), NOW_MS, True)
    assert [(one.outcome, one.reason) for one in desk.unsent] == [(Outcome.UNKNOWN, "interrupted")]
    assert len(done) == 1


def test_answers_wait_for_the_link(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.agent.start()
    rig.run(200)
    rig.cloud.down("cmd", command("ping", 1))
    rig.cloud.cut()
    rig.run(200)
    assert outcomes(rig) == []
    rig.cloud.connect()
    rig.run(200)
    assert outcomes(rig) == [("c1", "done", "")]
    rig.agent.stop(0)


def test_a_full_memory_refuses_and_forgets_only_what_has_expired(tmp_path: Path) -> None:
    memory = CommandMemory(tmp_path / "memory")
    for nonce in range(MAX_REMEMBERED):
        memory.entries[nonce] = Entry(f"c{nonce}", LATER)
    desk = CommandDesk("car-1", {"ping": lambda _: None}, memory)
    desk.take(command("ping", 9_999), NOW_MS, True)
    assert desk.unsent[-1].reason == "memory_full"
    desk.take(command("ping", 9_998, LATER + 10_000), LATER + 1, False)
    assert desk.unsent[-1].reason == "memory_full", "a clock that was never set knows nothing of expiries"
    assert desk.take(command("ping", 9_997, LATER + 10_000), LATER + 1, True)
    assert list(memory.entries) == [9_998, 9_997]


def test_what_was_refused_or_expired_is_never_carried_out_later(tmp_path: Path) -> None:
    """The cloud takes both for final: neither room, nor a clock set right, nor an agent that knows more changes it."""
    path, year_ms = tmp_path / "memory", 365 * 86_400_000
    memory = CommandMemory(path)
    for nonce in range(MAX_REMEMBERED):
        memory.entries[-nonce] = Entry("c", LATER)
    handlers: dict[str, Any] = {"ping": lambda _: None}
    desk = CommandDesk("car-1", handlers, memory)
    desk.take(command("ping", 1), NOW_MS, True)
    memory.entries = {nonce: entry for nonce, entry in memory.entries.items() if nonce > 0}
    desk.take(command("ping", 2), NOW_MS + year_ms, True)
    desk.take(command("ping", 3), NOW_MS - year_ms, True)
    desk.take(command("flush", 4), NOW_MS, True)
    reasons = ["memory_full", "", "bad_expiry", "unknown_kind"]
    first = list(desk.unsent)
    assert [one.reason for one in first] == reasons
    again = CommandDesk("car-1", handlers | {"flush": lambda _: None}, read_memory(path))
    for nonce, kind in ((1, "ping"), (2, "ping"), (3, "ping"), (4, "flush")):
        assert not again.take(command(kind, nonce), NOW_MS, True)
    assert list(again.unsent) == first


def test_without_room_to_remember_a_refusal_nothing_is_said(tmp_path: Path) -> None:
    memory = CommandMemory(tmp_path / "memory")
    for nonce in range(MAX_REMEMBERED + MAX_DECLINED):
        memory.entries[-nonce] = Entry("c", LATER)
    desk = CommandDesk("car-1", {"ping": lambda _: None}, memory)
    assert not desk.take(command("ping", 1), NOW_MS, True)
    assert not desk.unsent and 1 not in memory.entries
    assert desk.take(command("ping", 1, LATER + 10_000), LATER + 1, True), "it was never told as refused"


def test_a_disk_that_takes_nothing_means_later(tmp_path: Path) -> None:
    desk = CommandDesk("car-1", {"ping": lambda _: None}, read_memory(tmp_path / "no" / "folder"))
    assert not desk.take(command("ping", 1), NOW_MS, True)
    assert not desk.unsent
    (tmp_path / "no").mkdir()
    assert desk.take(command("ping", 1), NOW_MS, True)


YEAR_MS = 365 * 86_400_000
steps = st.lists(
    st.tuples(
        st.sampled_from(["deliver", "restart", "cut", "pass"]), st.integers(1, 4), st.integers(0, 3_000),
        st.booleans(), st.sampled_from([0, YEAR_MS, -YEAR_MS]),
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(steps=steps)
def test_never_twice_never_late(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Deliveries, repeats, restarts, cuts in the middle of the work, time passing, a clock that may not be set or is
    a year wrong. What was told as final stays: neither another answer nor work comes after it."""
    path = tmp_path_factory.mktemp("desk") / "memory"
    carried: list[tuple[int, int, bool]] = []
    now, wrong_ms, cut_next, trusted = NOW_MS, 0, False, True
    answers: dict[int, set[str]] = {}

    def work(one: Command) -> Done:
        assert one.nonce not in answers, "carried out after an answer was told"
        carried.append((one.nonce, now + wrong_ms, trusted))
        if cut_next:
            raise KeyboardInterrupt
        return Done({"n": one.nonce})

    desk = CommandDesk("car-1", {"ping": work}, read_memory(path))
    for what, nonce, by, trusted, wrong_ms in steps:
        now += by
        cut_next = what == "cut"
        if what == "restart":
            desk = CommandDesk("car-1", {"ping": work}, read_memory(path))
        elif what in ("deliver", "cut"):
            try:
                desk.take(command("ping", nonce, NOW_MS + 2_000 * nonce), now + wrong_ms, trusted)
            except KeyboardInterrupt:
                desk = CommandDesk("car-1", {"ping": work}, read_memory(path))
            for one in desk.unsent:
                answers.setdefault(one.nonce, set()).add(one.outcome.value)
            desk.unsent.clear()
    nonces = [nonce for nonce, _, _ in carried]
    assert len(nonces) == len(set(nonces))
    assert all(at <= NOW_MS + 2_000 * nonce for nonce, at, was_trusted in carried if was_trusted)
    assert all(len(told) == 1 for told in answers.values())


def test_what_was_issued_before_the_memory_was_lost_is_unknown_and_left_alone(tmp_path: Path) -> None:
    """A damaged file hides what was done: nothing from before runs again, over restarts too; what comes after does."""
    path, done = tmp_path / "memory", []

    def work(one: Command) -> Done:
        done.append(one.nonce)
        return Done()

    def take(
        nonce: int, issued_ms: int, at_ms: int = NOW_MS + 1_000, *, trusted: bool = True, kind: str = "ping"
    ) -> str:
        payload = encode_command(Command(f"c{nonce}", "car-1", kind, nonce, LATER, {}, issued_ms))
        desk = CommandDesk("car-1", {"ping": work, "edr_receipt": work}, read_memory(path))
        desk.take(payload, at_ms, trusted)
        return " ".join(f"{one.outcome.value} {one.reason}".strip() for one in desk.unsent)

    assert take(1, NOW_MS) == "done"
    torn = path.read_bytes()[:-5]
    path.write_bytes(torn)
    assert take(1, NOW_MS, trusted=False) == "unknown memory_lost"
    assert (tmp_path / "memory.damaged").read_bytes() == torn
    assert take(2, NOW_MS + 7_200_000, trusted=False) == "unknown memory_lost", "nobody knows when it was lost"
    assert take(1, NOW_MS) == take(2, 0) == "unknown memory_lost", "who does not say when it was issued may be old"
    assert take(3, NOW_MS + 1_000 + MAX_FUTURE_MS) == "unknown memory_lost", "two clocks are never the same"
    assert take(4, NOW_MS, kind="edr_receipt") == ""
    assert take(5, NOW_MS + 1_001 + MAX_FUTURE_MS, NOW_MS + 2_000) == "done"
    assert take(1, NOW_MS) == "unknown memory_lost"
    assert done == [1, 4, 5]


def test_a_loss_that_the_disk_does_not_take_is_known_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory"
    path.write_text('{"v": 1, "seen": [[1, "c"', encoding="ascii")

    def full(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert read_memory(path, NOW_MS).lost_ms == NOW_MS
    assert read_memory(path, NOW_MS + 5).lost_ms == NOW_MS + 5
    assert read_memory(path, NOW_MS + 9).lost_ms == NOW_MS + 5


# -- snapshots --------------------------------------------------------------------------------------------------------


class Quiet:
    """Two signals once, then silence; a third that never stops and never changes."""

    can_wait, finished, cursor = False, False, None

    def __init__(self) -> None:
        self._told = 0

    def seek(self, cursor: str) -> None:
        """A sensor has no past."""

    def read(self, now_ms: int, limit: int) -> list[Reading]:
        first, due = self._told, (now_ms - NOW_MS) // 100
        self._told = max(first, due)
        readings = [Reading(3, NOW_MS + n * 100, 7.0) for n in range(first, due)]
        return [Reading(1, NOW_MS, 50.0), Reading(20, NOW_MS, 900.0), *readings] if first == 0 < due else readings

    def close(self) -> None:
        """Nothing to give back."""


THIN = {"thin": True, "default": {"deadband": 0.5}}


def test_after_a_long_outage_a_snapshot_goes_first(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Quiet(), sampling=THIN, uplink={"snapshot_after_ms": 30_000})
    rig.agent.start()
    rig.run(5_000)
    rig.cloud.cut()
    rig.run(40_000)
    rig.cloud.published.clear()
    rig.cloud.connect()
    rig.run(2_000)
    packet = decode_packet(rig.cloud.published[0][1])
    assert packet.header.lane == Lane.LIVE
    assert {block.signal for block in packet.blocks} == {1, 3, 20}
    told = {block.signal: (packet.header.base_ms + block.offsets_ms[0], block.qualities) for block in packet.blocks}
    held = (int(Quality.SUBSTITUTED),)
    assert told[1][1] == told[20][1] == held, "kept before: told as held until now"
    assert told[1][0] >= NOW_MS + 45_000
    assert told[3][1] == (), "thinned away before: told as it was measured"
    rig.agent.stop(0)


def test_a_short_outage_and_a_recording_tell_no_snapshot(tmp_path: Path) -> None:
    absence = Absence(1_000)
    assert not absence.look(False, 0)
    assert not absence.look(True, 999)
    assert not absence.look(False, 1_000)
    assert absence.look(True, 2_000)
    assert absence.look(True, 2_001), "until it is accepted"


@given(
    st.lists(st.tuples(st.sampled_from([1, 3, 20]), st.integers(0, 50), st.integers(0, 3), st.booleans()), max_size=40)
)
def test_a_snapshot_tells_no_reading_twice(events: list[tuple[int, int, int, bool]]) -> None:
    sampler = Sampler(SamplingSettings.model_validate(THIN), catalogue())
    told: list[Reading] = []
    at = NOW_MS
    for signal, by, value, snapshot in events:
        at += by
        told += sampler.keep([Reading(signal, at, float(value))])
        if snapshot:
            at += 1
            told += sampler.snapshot(at, 0)
    times = [(one.signal, one.at_ms) for one in told if one.quality == Quality.SUBSTITUTED]
    real = [one for one in told if one.quality == Quality.GOOD]
    assert len(times) == len(set(times))
    assert len({id(one) for one in real}) == len(real)


# -- resync -----------------------------------------------------------------------------------------------------------


def test_resync_by_number_says_what_is_held_and_why_the_rest_is_not(tmp_path: Path) -> None:
    rig = Rig(tmp_path, uplink={"resend_ms": 60_000})
    rig.agent.start()
    rig.run(3_000)
    rig.cloud.acks = False
    rig.run(3_000)
    assert rig.agent.spool is not None
    given = rig.agent.spool.next_seq - 1
    held = [seq for _, seq in ((one >> 40, one & (1 << 40) - 1) for one in _held(rig))]
    rig.cloud.published.clear()
    rig.cloud.down("cmd", command("resync", 1, ranges=[[1, 1, given + 5], [7, 1, 3]]))
    rig.run(100)
    detail = rig.cloud.answers[-1].detail
    assert detail["held"] == [[1, held[0], held[-1]]]
    assert [1, 1, held[0] - 1, "freed"] in detail["not_held"]
    assert [1, given + 1, given + 5, "never_given"] in detail["not_held"]
    assert [7, 1, 3, "never_given"] in detail["not_held"]
    assert len(rig.cloud.published) >= len(held)
    rig.agent.stop(0)


def _held(rig: Rig) -> list[int]:
    assert rig.agent.spool is not None
    return [one.identity for one in rig.agent.spool.all_packets()]


def test_a_lost_spool_is_remembered_as_lost(tmp_path: Path) -> None:
    """The identity file outlives the spool: its epochs are told as gaps at once, and named when asked for."""
    rig = Rig(tmp_path)
    rig.cloud.acks = False
    rig.agent.start()
    rig.run(3_000)
    rig.agent.stop(0)
    for name in ("spool.db", "spool.db-wal", "spool.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    again = Rig(tmp_path, clock=rig.clock)
    again.agent.start()
    again.run(12_000)
    gaps = [(decode_packet(frame).header.boot_epoch, gap) for frame in again.cloud.stored.values()
            for gap in decode_packet(frame).gaps]  # fmt: skip
    assert [(epoch, gap.first_seq) for epoch, gap in gaps] == [(1, 1)]
    assert gaps[0][1].last_seq >= len(rig.history)
    again.cloud.down("cmd", command("resync", 1, ranges=[[1, 1, 2]]))
    again.run(1_000)
    assert again.cloud.answers[-1].detail["not_held"][0][3] in ("freed", "forgotten")
    again.agent.stop(0)


def test_a_handler_may_refuse(tmp_path: Path) -> None:
    def never(_: Command) -> Done:
        raise Rejected("not_now", "busy")

    desk = CommandDesk("car-1", {"ping": never}, read_memory(tmp_path / "memory"))
    assert not desk.take(command("ping", 1), NOW_MS, True)
    expected = Answer("c1", "car-1", 1, Outcome.REFUSED, "not_now", NOW_MS, {"text": "busy"})
    assert list(desk.unsent) == [expected]
