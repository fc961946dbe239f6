"""What may enter the log, by property: every refusal has a reason and its bytes, nothing raises, nothing is guessed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.limits import MAX_FUTURE_MS, MAX_PAST_MS
from contracts.packet import CRC_BYTES, MARKER, MAX_FRAME_BYTES, PREFIX_BYTES, DoubleBlock, Packet, encode_packet, seal
from contracts.registry import Registration
from contracts.stamp import FLAG_RECORDING, Stamp, decode_dead_letter, decode_stamp
from contracts.status import encode_status
from contracts.topics import Topics, up_topic
from gateway.admission import Accepted, Admission, Identity, Inbound, Refused, Verdict
from tests.gateway.samples import NONCE, NOW_MS, frame, packet, registration, status

TOPICS = Topics("t")
REGISTRY = {
    "car-1": registration(),
    "old-1": registration("old-1", 8, kind="recording"),
    "car-2": registration("car-2", 9, tenant="rival", tenant_id=4),
}
CHANNELS = ("live", "backlog", "priority")


def judge(payload: bytes, topic: str = "v1/car-1/up/live", *, retained: bool = False, whole: bool = False) -> Verdict:
    return Admission(TOPICS, REGISTRY, verify_whole=whole).admit(Inbound(topic, payload, retained, NOW_MS))


def refused(verdict: Verdict, payload: bytes) -> Refused:
    """A refusal keeps the bytes, goes to the dead letters and says why."""
    assert isinstance(verdict, Refused)
    assert verdict.record.topic == TOPICS.dead_letters.name
    assert verdict.record.value == payload
    letter = decode_dead_letter(verdict.record.header[1])
    assert letter.reason == verdict.reason
    assert letter.received_ms == NOW_MS
    assert (letter.boot_epoch, letter.seq) == (
        (1, verdict.identity.seq) if verdict.identity else (letter.boot_epoch, letter.seq)
    )
    return verdict


@given(
    seq=st.integers(1, 2**40),
    epoch=st.integers(1, 2**31),
    nonce=st.integers(-(2**63), 2**63 - 1),
    lane=st.integers(0, 2),
)
def test_a_sound_packet_is_accepted_untouched(seq: int, epoch: int, nonce: int, lane: int) -> None:
    payload = frame(seq=seq, epoch=epoch, nonce=nonce, lane=lane)
    verdict = judge(payload, up_topic("car-1", CHANNELS[lane]))
    assert isinstance(verdict, Accepted)
    assert verdict.record.topic == TOPICS.lane(lane).name
    assert verdict.record.key == b"car-1"
    assert verdict.record.value == payload
    assert decode_stamp(verdict.record.header[1]) == Stamp(NOW_MS, 7, 3)
    assert (verdict.identity, verdict.device, verdict.urgent) == (Identity(epoch, nonce, seq), "car-1", lane == 2)


@given(topic=st.text(max_size=80), payload=st.binary(max_size=200), retained=st.booleans(), whole=st.booleans())
def test_nothing_raises_and_no_noise_is_accepted(topic: str, payload: bytes, retained: bool, whole: bool) -> None:
    verdict = refused(judge(payload, topic, retained=retained, whole=whole), payload)
    assert verdict.identity is None


@given(body=st.binary(max_size=300), whole=st.booleans())
def test_a_right_checksum_over_any_body_raises_nothing(body: bytes, whole: bool) -> None:
    payload = seal(frame()[:PREFIX_BYTES] + body)
    verdict = judge(payload, whole=whole)
    assert isinstance(verdict, Accepted | Refused)


@given(data=st.data())
def test_cut_or_flipped_frames_are_refused_without_an_identity(data: st.DataObject) -> None:
    whole = frame()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    flipped = whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :]
    for payload in (cut, flipped):
        verdict = refused(judge(payload), payload)
        assert verdict.identity is None
        assert verdict.reason in ("not_a_packet", "bad_crc")


@given(body=st.binary(min_size=1, max_size=200))
def test_forged_bodies_pass_the_header_check_only_unless_decoded_whole(body: bytes) -> None:
    sound = frame(samples=0)
    forged = seal(sound[:-CRC_BYTES][:-6] + b"\x02" + body)
    assert refused(judge(forged, whole=True), forged).reason in ("bad_body", "bad_header")


def test_a_body_that_claims_two_thousand_million_items() -> None:
    header_only = frame(samples=0)[:-CRC_BYTES]
    huge = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0x0F])  # zig-zag varint of 2**31 - 1
    forged = seal(header_only[:-8] + huge)
    assert refused(judge(forged, whole=True), forged).reason == "bad_body"


@pytest.mark.parametrize(
    ("reason", "payload", "topic"),
    [
        ("device_mismatch", frame("car-2"), "v1/car-1/up/live"),
        ("tenant_mismatch", frame(tenant="rival"), "v1/car-1/up/live"),
        ("lane_mismatch", frame(lane=1), "v1/car-1/up/live"),
        ("future", frame(base_ms=NOW_MS + MAX_FUTURE_MS + 1), "v1/car-1/up/live"),
        ("far_past", frame(base_ms=NOW_MS - MAX_PAST_MS - 1), "v1/car-1/up/live"),
        ("future", frame("old-1", base_ms=NOW_MS + MAX_FUTURE_MS + 1), "v1/old-1/up/live"),
    ],
)
def test_what_is_refused_with_its_identity(reason: str, payload: bytes, topic: str) -> None:
    verdict = refused(judge(payload, topic), payload)
    assert (verdict.reason, verdict.identity) == (reason, Identity(1, NONCE, 1))


@pytest.mark.parametrize(
    ("reason", "payload", "topic"),
    [
        ("bad_topic", frame(), "v1/car-1/up"),
        ("bad_topic", frame(), "v1/car-1/up/live/more"),
        ("bad_topic", frame(), "v1/car 1/up/live"),
        ("bad_topic", frame(), "v1/car-1/down/ack"),
        ("not_a_packet", b"", "v1/car-1/up/live"),
        ("too_large", MARKER + bytes(MAX_FRAME_BYTES), "v1/car-1/up/live"),
        ("unknown_fingerprint", seal(MARKER + bytes(8) + b"body"), "v1/car-1/up/live"),
        ("bad_status", b"{}", "v1/car-1/up/status"),
        ("bad_status", b"[" * 50_000, "v1/car-1/up/status"),
        ("too_large", bytes(MAX_FRAME_BYTES + 1), "v1/car-1/up/status"),
        ("device_mismatch", encode_status(status("car-2")), "v1/car-1/up/status"),
    ],
)
def test_what_is_refused_without_an_identity(reason: str, payload: bytes, topic: str) -> None:
    verdict = refused(judge(payload, topic), payload)
    assert (verdict.reason, verdict.identity) == (reason, None)


def test_the_clock_bounds_themselves_are_allowed() -> None:
    for base_ms in (NOW_MS + MAX_FUTURE_MS, NOW_MS - MAX_PAST_MS):
        assert isinstance(judge(frame(base_ms=base_ms)), Accepted)


def test_a_recording_may_be_old_and_is_marked() -> None:
    verdict = judge(frame("old-1", base_ms=0), "v1/old-1/up/live")
    assert isinstance(verdict, Accepted)
    assert decode_stamp(verdict.record.header[1]).flags == FLAG_RECORDING


def test_the_unregistered_are_kept_aside_and_never_confirmed() -> None:
    payload = frame("stranger")
    verdict = refused(judge(payload, "v1/stranger/up/live"), payload)
    assert (verdict.reason, verdict.identity) == ("unregistered", None)
    assert decode_dead_letter(verdict.record.header[1]).device == "stranger"


def test_a_retained_publish_is_refused() -> None:
    assert refused(judge(frame(), retained=True), frame()).reason == "retained"


def test_a_status_goes_to_its_topic_and_is_not_confirmed() -> None:
    payload = encode_status(status())
    verdict = judge(payload, "v1/car-1/up/status")
    assert isinstance(verdict, Accepted)
    assert (verdict.record.topic, verdict.identity) == (TOPICS.status.name, None)


def test_the_registry_is_followed() -> None:
    registry: dict[str, Registration] = {}
    admission = Admission(TOPICS, registry)
    message = Inbound("v1/car-1/up/live", frame(), False, NOW_MS)
    assert isinstance(admission.admit(message), Refused)
    registry["car-1"] = registration()
    assert isinstance(admission.admit(message), Accepted)
    del registry["car-1"]
    assert isinstance(admission.admit(message), Refused)


def test_hostile_text_in_a_topic_stays_printable() -> None:
    verdict = refused(judge(b"x", "v1/\x00\ud800/" + "y" * 500), b"x")
    letter = decode_dead_letter(verdict.record.header[1])
    assert letter.mqtt_topic.isascii() and "\x00" not in letter.mqtt_topic
    assert len(letter.mqtt_topic) <= 10 * 200


def test_doubles_that_end_early_are_a_bad_body() -> None:
    """A reader of doubles complains with an error of its own kind."""
    sound = encode_packet(Packet(packet(samples=1).header, (), (DoubleBlock(1, (0,), (1.5,)),)))
    marker = struct.pack("<d", 1.5)
    cut = seal(sound[: sound.index(marker) + 3])
    assert refused(judge(cut, whole=True), cut).reason == "bad_body"


def test_each_channel_has_its_rate_and_invented_topics_share_one() -> None:
    admission = Admission(TOPICS, REGISTRY)
    good = [up_topic("car-1", channel) for channel in (*CHANNELS, "status")]
    assert [admission.bucket(topic) for topic in good] == good
    odd = ["v1/car-1/up", "v1/car-1/up/x", "v1/car-1/up/live/1", "v1/car-1/up/live/2"]
    assert {admission.bucket(topic) for topic in odd} == {"v1/car-1"}
