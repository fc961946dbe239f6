"""The recorder inside of the agent: notice at once, capsule from its own file, sent until a receipt, over restarts."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest

from contracts.commands import Command, encode_command
from contracts.edr.capsule import open_capsule
from contracts.edr.raw import decode_raw
from contracts.edr.verify import verify_capsule
from contracts.edr.wire import (
    RECEIPT,
    AttachmentPiece,
    CapsuleParcel,
    Linkage,
    Message,
    Notice,
    Receipt,
    event_of,
    join,
    open_parcel,
    receipt_arguments,
    receipted_sha256,
)
from contracts.edr.x509 import X509Checks
from contracts.packet import Lane, decode_header, is_parcel
from edge_agent.clock import ManualClock
from edge_agent.errors import SettingsError
from edge_agent.recorder.feed import Sample
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.wiring import build_agent
from simulators.crashes.play import BUMPER, simulated_signer
from simulators.crashes.scenarios import SCENARIOS
from simulators.crashes.source import POSITION, CrashDrive
from tests.edge_agent.doubles import NOW_MS, Cloud, agent_settings

STEP_MS = 50
SKIP_S = 20.0
"""The drive begins three seconds before the impact; the recorder has not learned its sensor's zero then."""

IDLE_MS = 1_000
VIN = "WVWZZZ1KZ00000000"


class CrashRig:
    """An agent with a recorder, a simulated crash under way, the cloud in memory; restarts keep the files."""

    def __init__(self, folder: Path, pulse: str = "haversine", **settings: Any) -> None:
        self.folder = folder
        self.pulse = pulse
        self.clock = ManualClock(NOW_MS)
        self.cloud = Cloud()
        self.settings = RecorderSettings(
            path=folder / "recorder.fsr", source="simulated", vin=VIN, driver="driver-7", **settings
        )
        self.start(crash=True)

    def start(self, crash: bool) -> None:
        wall, mono = self.clock.now_ms(), self.clock.mono_ms()
        scenario = SCENARIOS[self.pulse]
        self.drive = CrashDrive(scenario, BUMPER, 1, mono, wall, SKIP_S)
        self.agent = build_agent(
            agent_settings(self.folder, recorder=self.settings), self.drive, self.clock, link=self.cloud,
            crash_source=self.drive if crash else None, crash_signer=simulated_signer(1),
        )  # fmt: skip
        self.agent.start()

    def run(self, for_ms: int) -> None:
        for _ in range(for_ms // STEP_MS):
            self.agent.tick()
            self.clock.advance(STEP_MS)

    def idle(self, for_ms: int) -> None:
        """Time passes in larger steps: nothing is measured, only waited for."""
        for _ in range(for_ms // IDLE_MS):
            self.agent.tick()
            self.clock.advance(IDLE_MS)

    def run_to_the_end(self) -> None:
        while not self.drive.over:
            self.run(STEP_MS)
        self.run(6_000)

    def parcels(self, of: type[Message]) -> list[Any]:
        opened = [open_parcel(frame)[1] for frame in self.cloud.stored.values() if is_parcel(frame)]
        return [message for message in opened if isinstance(message, of)]

    def send_receipts(self, messages: list[Message], nonce: int = 100) -> None:
        for number, message in enumerate(messages):
            sha256 = receipted_sha256(message)
            assert sha256 is not None
            arguments = receipt_arguments(Receipt(message.event_id, sha256))
            expires_ms = self.clock.now_ms() + 60_000
            command = Command(f"r{nonce + number}", "car-1", RECEIPT, nonce + number, expires_ms, arguments)
            self.cloud.down("cmd", encode_command(command))


def all_kinds(rig: CrashRig) -> list[Message]:
    return [*rig.parcels(CapsuleParcel), *rig.parcels(Linkage), *rig.parcels(AttachmentPiece)]


def test_a_crash_is_announced_at_once_and_its_evidence_follows(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.run(rig.drive.impact_ms + 100)
    [notice], [linkage] = rig.parcels(Notice), rig.parcels(Linkage)
    assert not rig.parcels(CapsuleParcel)
    assert notice.event_id == linkage.event_id and notice.trigger in ("delta_v", "restraint")
    assert notice.speed_dkmh is not None and 250 < notice.speed_dkmh < 600
    rig.run_to_the_end()
    capsules = rig.parcels(CapsuleParcel)
    whole = open_capsule(max(capsules, key=lambda one: one.record_no).capsule)
    assert whole.record.complete and event_of(whole) == notice.event_id
    opened, faults = verify_capsule(max(capsules, key=lambda one: one.record_no).capsule, X509Checks(), NOW_MS)
    assert opened is not None and not faults
    [claim] = whole.record.attachments
    raw = join(rig.parcels(AttachmentPiece))
    assert (hashlib.sha256(raw).digest(), len(raw)) == (claim.sha256, claim.size_bytes)
    motion = decode_raw(raw)
    assert min(motion.x) < -50_000 and motion.after_us[0] < -900_000
    for frame in rig.cloud.stored.values():
        assert (decode_header(frame).lane == Lane.PRIORITY) == is_parcel(frame)
    rig.agent.stop(0)


def test_who_where_and_when_are_in_the_linkage_only(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.run_to_the_end()
    [linkage] = rig.parcels(Linkage)
    assert (linkage.vin, linkage.driver) == (VIN, "driver-7")
    assert (linkage.latitude_e7, linkage.longitude_e7) == tuple(round(degrees * 1e7) for degrees in POSITION)
    assert linkage.position_age_ms is not None and 0 <= linkage.position_age_ms <= 1_100
    assert abs(linkage.zero_at_ms - (NOW_MS + rig.drive.impact_ms)) < 50
    for capsule in rig.parcels(CapsuleParcel):
        assert VIN.encode() not in capsule.capsule and b"driver-7" not in capsule.capsule
    for notice in rig.parcels(Notice):
        assert VIN not in repr(notice) and "driver-7" not in repr(notice)
    rig.agent.stop(0)


def test_without_a_receipt_it_is_sent_again_and_the_receipt_alone_ends_that(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.run_to_the_end()
    assert rig.agent.spool is not None and rig.agent.spool.index.lane_packets(Lane.PRIORITY) == 0
    before = len(rig.parcels(CapsuleParcel))
    rig.idle(61_000)
    repeated = rig.parcels(CapsuleParcel)
    assert len(repeated) > before and len({one.capsule for one in repeated}) < len(repeated)
    rig.send_receipts(all_kinds(rig))
    rig.run(1_000)
    quiet = len(all_kinds(rig))
    rig.idle(400_000)
    assert len(all_kinds(rig)) == quiet
    rig.agent.stop(0)


def test_a_strange_receipt_releases_nothing(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.run_to_the_end()
    [linkage] = rig.parcels(Linkage)
    other = Linkage(linkage.event_id, 1, True, None, None, None, None, None)
    rig.send_receipts([other])
    rig.run(1_000)
    before = len(rig.parcels(CapsuleParcel))
    rig.idle(61_000)
    assert len(rig.parcels(CapsuleParcel)) > before
    rig.agent.stop(0)


def test_a_restart_in_between_loses_nothing(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.cloud.cut()
    rig.run_to_the_end()
    rig.agent.stop(0)
    assert not rig.cloud.stored
    (tmp_path / "spool.db").unlink()
    rig.cloud = Cloud()
    rig.start(crash=False)
    rig.run(2_000)
    capsules = rig.parcels(CapsuleParcel)
    assert capsules and rig.parcels(Linkage) and join(rig.parcels(AttachmentPiece))
    rig.send_receipts(all_kinds(rig))
    rig.run(1_000)
    rig.agent.stop(0)
    rig.cloud = Cloud()
    rig.start(crash=False)
    rig.idle(70_000)
    assert not all_kinds(rig)
    rig.agent.stop(0)


def test_while_the_spool_holds_a_copy_no_second_one_is_put_into_it(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.cloud.cut()
    rig.run_to_the_end()
    spool = rig.agent.spool
    assert spool is not None
    held = spool.index.lane_packets(Lane.PRIORITY)
    rig.idle(200_000)
    assert spool.index.lane_packets(Lane.PRIORITY) == held > 3
    rig.agent.stop(0)
    rig.start(crash=False)
    rig.cloud.cut()
    rig.idle(70_000)
    assert rig.agent.spool is not None and rig.agent.spool.index.lane_packets(Lane.PRIORITY) == held
    rig.agent.stop(0)


def test_sources_that_fall_silent_in_the_crash_leave_a_capsule_all_the_same(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.run(rig.drive.impact_ms + 150)
    rig.drive.samples = rig.drive.read = lambda *_: []  # type: ignore[method-assign,assignment]
    rig.run(8_000)
    capsules = [open_capsule(one.capsule) for one in rig.parcels(CapsuleParcel)]
    assert len(rig.parcels(Notice)) == 1 and capsules
    assert {event_of(one) for one in capsules} == {rig.parcels(Notice)[0].event_id}
    rig.agent.stop(0)


@pytest.mark.parametrize("name", ["motion", "speed"])
def test_a_sample_ahead_of_the_clock_or_without_a_number_stops_nothing(tmp_path: Path, name: str) -> None:
    rig = CrashRig(tmp_path)
    honest, spoilt = rig.drive.samples, rig.drive.impact_ms * 1_000 - 1_500_000

    def samples(mono_us: int, limit: int) -> list[Sample]:
        taken = list(honest(mono_us, limit))
        for sample in list(taken):
            if sample.name == name and spoilt <= sample.at_us < spoilt + 100_000:
                nonsense = (math.nan,) * 3 if name == "motion" else math.nan
                taken.append(sample._replace(value=nonsense))
                taken.append(sample._replace(at_us=sample.at_us + 3_600_000_000))
        return taken

    rig.drive.samples = samples  # type: ignore[method-assign]
    rig.run_to_the_end()
    record = open_capsule(max(rig.parcels(CapsuleParcel), key=lambda one: one.record_no).capsule).record
    change, speed = record.value("max_delta_v_longitudinal"), record.value("speed")
    assert record.complete and change is not None and change.values[0] == pytest.approx(-45, abs=2)
    assert speed is not None and None not in speed.values[-5:]
    rig.agent.stop(0)


@pytest.mark.parametrize("pulse", ["emergency_braking", "kerb_strike"])
def test_no_crash_no_parcel(tmp_path: Path, pulse: str) -> None:
    rig = CrashRig(tmp_path, pulse)
    rig.run_to_the_end()
    rig.agent.stop(0)
    assert not [frame for frame in rig.cloud.stored.values() if is_parcel(frame)]


def test_the_agent_that_leaves_in_a_crash_seals_what_it_has(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.run(rig.drive.impact_ms + 100)
    rig.agent.stop(0)
    [capsule] = rig.parcels(CapsuleParcel)
    assert not open_capsule(capsule.capsule).record.complete


def test_a_damaged_recorder_file_is_set_aside_and_kept(tmp_path: Path) -> None:
    rig = CrashRig(tmp_path)
    rig.run_to_the_end()
    rig.agent.stop(0)
    file = tmp_path / "recorder.fsr"
    file.write_bytes(b"\xff" * 512 + file.read_bytes()[512:])
    damaged = file.read_bytes()
    rig.start(crash=False)
    [aside] = tmp_path.glob("recorder.fsr.damaged-*")
    assert aside.read_bytes() == damaged
    rig.agent.stop(0)


def test_a_recorder_without_a_key_is_refused_with_the_settings_name(tmp_path: Path) -> None:
    settings = agent_settings(tmp_path, recorder=RecorderSettings(path=tmp_path / "r.fsr"))
    with pytest.raises(SettingsError, match=r"recorder\.key"):
        build_agent(settings, CrashDrive(SCENARIOS["square"], BUMPER, 1, 0, NOW_MS), ManualClock(NOW_MS), link=Cloud())
