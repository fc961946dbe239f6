"""The whole recorder on a real file: restarts, receipts, the incomplete record, a full file, a failing medium."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.edr.capsule import open_capsule
from contracts.edr.verify import verify_export
from contracts.edr.x509 import X509Checks
from edge_agent.recorder.blockfile import FlashFile, MemoryFile
from edge_agent.recorder.errors import RecorderFileUnusable
from edge_agent.recorder.recorder import CrashRecorder, Sealed
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.recorder.store import RecordStore, file_size_bytes
from edge_agent.recorder.wiring import build_recorder, open_file
from simulators.crashes.play import simulated_signer

NOW_MS = 1_790_000_000_000
GRAVITY = 9.80665


def recorder_on(file: FlashFile | MemoryFile, settings: RecorderSettings, boot: int = 1) -> CrashRecorder:
    return build_recorder(settings, file, simulated_signer(1), boot, bytes(range(16)))


def crash(recorder: CrashRecorder, at_ms: int, seconds: float, roll: bool = False, restraint: str = "") -> list[Sealed]:
    """One square frontal pulse of 40 m/s² for 100 ms at ``at_ms``, then ``seconds`` of calm."""
    sealed: list[Sealed] = []
    for moment in range(at_ms - 300, at_ms + 100 + int(seconds * 1_000), 2):
        if moment % 100 == 0:
            sealed += recorder.on_channel(moment * 1_000, "speed", 50.0)
            if roll:
                sealed += recorder.on_channel(moment * 1_000, "roll_angle", 0.0)
        if restraint and moment == at_ms + 20:
            sealed += recorder.on_restraint(moment * 1_000, restraint)
        sealed += recorder.on_motion(moment * 1_000, -40.0 if 0 <= moment - at_ms < 100 else 0.0, 0.0, GRAVITY)
    return sealed


def test_records_survive_a_restart_on_a_real_file(tmp_path: Path) -> None:
    settings = RecorderSettings(path=tmp_path / "recorder.fsr", profile="gb-39732")
    file = open_file(settings)
    assert file.size_bytes == settings.path.stat().st_size == file_size_bytes(3, settings.slot_bytes)
    (one,) = crash(recorder_on(file, settings), 1_000, 1.0)
    file.close()
    again = open_file(settings)
    recorder = recorder_on(again, settings, boot=2)
    assert [held.capsule for held in recorder.undelivered()] == [one.capsule]
    (two,) = crash(recorder, 1_000, 1.0)
    record = open_capsule(two.capsule).record
    assert (two.record_no, record.boot_epoch, record.ignition_cycle_crash) == (2, 2, 2)
    assert record.event_number == 1, "another start is another crash"
    found = verify_export(recorder.export(NOW_MS), X509Checks(), NOW_MS)
    assert found.holds and found.manifest is not None and found.manifest.ignition_cycle_download == 2
    recorder.receipt(1)
    assert [held.record_no for held in recorder.undelivered()] == [2]
    again.close()


def test_a_crash_is_safe_at_once_and_whole_later() -> None:
    settings = RecorderSettings(profile="part563-2024")
    file = MemoryFile(file_size_bytes(2, settings.slot_bytes))
    recorder = recorder_on(file, settings)
    first = crash(recorder, 1_000, 1.0, roll=True)
    assert [(one.record_no, one.complete) for one in first] == [(1, False)]
    record = open_capsule(first[0].capsule).record
    complete = record.value("complete_file_recorded")
    assert complete is not None and complete.values == (0,)
    later = [
        one for moment in range(2_200, 7_000, 50) for one in recorder.on_channel(moment * 1_000, "roll_angle", 0.0)
    ]
    assert [(one.record_no, one.supersedes, one.complete) for one in later] == [(2, 1, True)]
    assert [one.record_no for one in recorder.undelivered()] == [2]
    assert verify_export(recorder.export(NOW_MS), X509Checks(), NOW_MS).holds


def test_a_failing_supply_keeps_what_there_is() -> None:
    settings = RecorderSettings(profile="part563-2024")
    recorder = recorder_on(MemoryFile(file_size_bytes(2, settings.slot_bytes)), settings)
    assert crash(recorder, 1_000, 0.1) == []
    (one,) = recorder.close()
    assert not one.complete
    assert recorder.close() == []


def test_locked_records_are_never_overwritten_and_the_refusal_is_counted() -> None:
    settings = RecorderSettings(profile="part563-2024")
    recorder = recorder_on(MemoryFile(file_size_bytes(2, settings.slot_bytes)), settings)
    for number in range(3):
        crash(recorder, 10_000 * (number + 1), 1.0, restraint="frontal_airbag_time_driver" if number < 2 else "")
    assert [one.record_no for one in recorder.undelivered()] == [1, 2]
    assert recorder.refused == 1


class FailingMedium(MemoryFile):
    """Refuses writes of at least ``from_bytes`` while ``failing``."""

    failing, from_bytes = False, 0

    def write(self, offset: int, data: bytes) -> None:
        if self.failing and len(data) >= self.from_bytes:
            raise OSError(5, "Input/output error")
        super().write(offset, data)


def one_chain(sealed: list[Sealed]) -> bool:
    """Whether these capsules number themselves without a gap or a repetition, each pointing at the one before."""
    opened = [open_capsule(one.capsule) for one in sealed]
    numbers = [capsule.head.place.record_no for capsule in opened]
    pointers = [capsule.head.place.previous_sha256 for capsule in opened]
    return (
        numbers == [one.record_no for one in sealed] == list(range(1, len(sealed) + 1))
        and pointers[1:] == [capsule.sha256 for capsule in opened[:-1]]
    )  # fmt: skip


@pytest.mark.parametrize("from_bytes", [0, 1_024])
def test_a_record_that_the_medium_refuses_travels_from_memory_under_a_number_of_its_own(from_bytes: int) -> None:
    settings = RecorderSettings(profile="part563-2024")
    file = FailingMedium(file_size_bytes(2, settings.slot_bytes))
    recorder = recorder_on(file, settings)
    sealed = crash(recorder, 10_000, 1.0)
    file.failing, file.from_bytes = True, from_bytes
    sealed += crash(recorder, 20_000, 1.0)
    file.failing = False
    if from_bytes:  # the medium took the header: the number outlives a restart
        recorder = recorder_on(file, settings, boot=2)
    sealed += crash(recorder, 30_000, 1.0)
    assert [one.durable for one in sealed] == [True, False, True] and one_chain(sealed)
    assert [one.record_no for one in recorder.undelivered()] == [1, 3]
    assert verify_export(recorder.export(NOW_MS), X509Checks(), NOW_MS).holds


def test_what_a_full_recorder_refuses_travels_from_memory() -> None:
    settings = RecorderSettings(profile="part563-2024")
    file = MemoryFile(file_size_bytes(2, settings.slot_bytes))
    recorder = recorder_on(file, settings)
    sealed: list[Sealed] = []
    for number in range(1, 6):
        sealed += crash(recorder, 10_000 * number, 1.0, restraint="frontal_airbag_time_driver")
        recorder = recorder_on(file, settings, boot=number + 1)
    assert [one.durable for one in sealed] == [True, True, False, False, False] and one_chain(sealed)
    assert [one.record_no for one in recorder.undelivered()] == [1, 2], "the locked ones are untouched"
    assert verify_export(recorder.export(NOW_MS), X509Checks(), NOW_MS).holds


def test_an_unlocked_record_gives_way_to_the_next_crash() -> None:
    settings = RecorderSettings(profile="part563-2024")
    recorder = recorder_on(MemoryFile(file_size_bytes(2, settings.slot_bytes)), settings)
    for number in range(4):
        crash(recorder, 10_000 * (number + 1), 1.0, restraint="frontal_airbag_time_driver" if number == 0 else "")
    assert [(one.record_no, one.locked) for one in recorder.undelivered()] == [(1, True), (4, False)]
    assert recorder.refused == 0
    assert verify_export(recorder.export(NOW_MS), X509Checks(), NOW_MS).holds


def test_a_pedestrian_system_triggers_where_the_regulation_says_so() -> None:
    settings = RecorderSettings(profile="un-r160")
    recorder = recorder_on(MemoryFile(file_size_bytes(3, settings.slot_bytes)), settings)
    for moment in range(0, 1_000, 2):
        recorder.on_motion(moment * 1_000, 0.0, 0.0, GRAVITY)
    recorder.on_restraint(1_000_000, "vru_system_time")
    sealed: list[Sealed] = []
    for moment in range(1_002, 8_000, 2):
        sealed += recorder.on_motion(moment * 1_000, 0.0, 0.0, GRAVITY)
    (one,) = [each for each in sealed if each.complete]
    record = open_capsule(one.capsule).record
    assert (record.trigger, record.time_zero_rule, record.lock_reason) == ("vru", "deployment", "vru")
    with pytest.raises(KeyError):
        recorder.on_restraint(9_000_000, "ejection_seat_time")


def test_a_medium_that_returns_other_bytes_is_said() -> None:
    file = MemoryFile(file_size_bytes(2, 4_096))
    store = RecordStore(file, 2, 4_096, bytes(16))
    header = store.put(b"evidence", False, True)
    at = file.data.index(b"evidence")
    file.data[at] ^= 1
    with pytest.raises(RecorderFileUnusable, match="other bytes"):
        store.payload(header)
    [damaged] = RecordStore(file, 2, 4_096, bytes(16)).live()
    assert damaged.damaged and (damaged.record_no, damaged.sha256) == (1, header.sha256)


def test_a_locked_record_that_rots_keeps_its_place_and_number_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    settings = RecorderSettings(profile="un-r160")
    file = MemoryFile(file_size_bytes(3, settings.slot_bytes))
    recorder = recorder_on(file, settings)
    crash(recorder, 10_000, 1.0, restraint="frontal_airbag_time_driver")
    [locked] = recorder.undelivered()
    recorder.receipt(locked.record_no)
    at = bytes(file.data).index(locked.capsule) + len(locked.capsule) // 2
    file.data[at] ^= 1
    rotten = bytes(file.data[at - 500 : at + 500])
    again = recorder_on(file, settings, boot=2)
    assert f"event=crash_record_damaged record_no={locked.record_no} locked=True" in caplog.text
    assert again.undelivered() == []
    sealed: list[Sealed] = []
    for number in range(4):
        sealed += crash(again, 10_000 * (number + 1), 1.0)
        assert rotten in bytes(file.data), "a locked record is overwritten by nothing"
    first = open_capsule(sealed[0].capsule).head.place
    place = open_capsule(sealed[-1].capsule).head.place
    assert (first.record_no, first.previous_sha256) == (locked.record_no + 1, open_capsule(locked.capsule).sha256)
    assert locked.record_no in {kept.record_no for kept in place.kept}
    verdict = verify_export(again.export(NOW_MS), X509Checks(), NOW_MS)
    assert not verdict.holds and f"record {locked.record_no}" in verdict.faults[0].place
    assert all(f"record {locked.record_no}" in f"{fault.place}: {fault.what}" for fault in verdict.faults)


def test_a_file_of_another_make_is_refused_untouched() -> None:
    file = MemoryFile(file_size_bytes(3, 4_096))
    RecordStore(file, 3, 4_096, bytes(16)).put(b"evidence", False, True)
    before = bytes(file.data)
    with pytest.raises(RecorderFileUnusable, match="another capacity"):
        RecordStore(file, 2, 4_096, bytes(16))
    file.data[3] ^= 1
    with pytest.raises(RecorderFileUnusable, match="damaged"):
        RecordStore(file, 3, 4_096, bytes(16))
    file.data[3] ^= 1
    assert bytes(file.data) == before
    with pytest.raises(RecorderFileUnusable, match="needs"):
        RecordStore(MemoryFile(100), 3, 4_096, bytes(16))
