"""Capsules and exports: what holds, and that every kind of harm is noticed and named."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from contracts.edr import frames
from contracts.edr.capsule import MAGIC as CAPSULE_MAGIC
from contracts.edr.capsule import SIGNED_PREFIX, ChainPlace, open_capsule, seal
from contracts.edr.cbor import decode, encode
from contracts.edr.errors import MalformedEvidence, RecordOutsideProfile
from contracts.edr.export import MAGIC as EXPORT_MAGIC
from contracts.edr.export import build_export
from contracts.edr.raw import RAW_MOTION, RawMotion, decode_raw, encode_raw
from contracts.edr.record import Attachment
from contracts.edr.verify import Verdict, verify_export
from contracts.edr.x509 import X509Checks
from edge_agent.recorder.signing import DeviceSigner
from tests.contracts.edr.evidence import NOW_MS, PROFILE, RECORDER_ID, capsules, export, record, signer


class RememberingChecks(X509Checks):
    """The real checks, remembered per question: a chain is the same in thousands of flipped files."""

    def __init__(self) -> None:
        self._answers: dict[tuple[tuple[bytes, ...], int], list[str]] = {}

    def chain_faults(self, certificates: Sequence[bytes], at_ms: int) -> list[str]:
        key = (tuple(certificates), at_ms)
        if key not in self._answers:
            self._answers[key] = super().chain_faults(certificates, at_ms)
        return self._answers[key]


CHECKS = RememberingChecks()


def verdict(data: bytes, *roots: bytes, at_ms: int = NOW_MS) -> Verdict:
    return verify_export(data, CHECKS, at_ms, roots or None)


def places(data: bytes) -> str:
    found = verdict(data)
    assert not found.holds
    return "\n".join(map(str, found.faults))


def pieces(data: bytes) -> list[tuple[str, bytes]]:
    return [(frame.tag, frame.payload) for frame in frames.read(EXPORT_MAGIC, data)]


def root_of(key: DeviceSigner) -> bytes:
    return hashlib.sha256(key.certificates[-1]).digest()


def test_a_sound_export_holds_and_says_what_is_in_it() -> None:
    found = verdict(export(capsules(3)), root_of(signer()))
    assert found.holds and found.root_pinned
    assert [capsule.head.place.record_no for capsule in found.capsules] == [1, 2, 3]
    assert found.manifest is not None and found.manifest.ignition_cycle_download == 9
    assert found.capsules[0].record == replace(record(41), event_number=2)


def test_same_record_same_bytes() -> None:
    assert capsules(2) == capsules(2)
    place = ChainPlace(RECORDER_ID, 1, bytes(32), ())
    assert open_capsule(seal(record(), PROFILE, place, signer())).record == record()


def test_a_capsule_carries_no_who_and_no_where() -> None:
    data = capsules(1)[0][1]
    for word in (b"vin", b"latitude", b"longitude_", b"driver_name", b"wall", b"_at_ms", b"date_time"):
        assert word not in data
    part = next(frame.payload for frame in frames.read(CAPSULE_MAGIC, data) if frame.tag == "PART")
    event = decode(part)
    assert isinstance(event, dict)
    assert {key for key in event if key.endswith(("_us", "_ms", "_at"))} == {
        "time_zero_us",  # since the device's start, not since 1970
        "trigger_after_us",
        "end_after_us",
        "since_previous_us",
        "acceleration_step_us",
    }


def test_one_flipped_bit_anywhere_is_noticed_and_its_place_named() -> None:
    sound = export(capsules(1))
    assert verdict(sound).holds
    generator = random.Random(5)
    for at in range(len(sound)):
        flipped = bytearray(sound)
        flipped[at] ^= 1 << generator.randrange(8)
        found = verdict(bytes(flipped))
        assert not found.holds, f"byte {at}"
        assert any(fault.first_byte <= at <= fault.last_byte for fault in found.faults), (at, found.faults)


@pytest.mark.parametrize(
    ("mark", "place"), [(b"values", "element"), (b"longitudinal_gate", "event"), (b"key_id", "head")]
)
def test_the_place_is_named_in_words(mark: bytes, place: str) -> None:
    sound = export(capsules(2))
    flipped = bytearray(sound)
    flipped[sound.rindex(mark)] ^= 1
    assert f"record 2, {place}" in places(bytes(flipped))


@pytest.mark.parametrize("cut", [1, 5, 100, 700, -1])
def test_a_cut_file_does_not_hold(cut: int) -> None:
    assert "skeleton" in places(export(capsules(1))[:cut])


def test_bytes_after_the_end_do_not_hold() -> None:
    assert "skeleton" in places(export(capsules(1)) + b"\0")


def forged_value(capsule: bytes, first_seal_again: bool) -> bytes:
    """The speed element rewritten with correct sums; with ``first_seal_again`` also its hash in the head."""
    found = [(frame.tag, frame.payload) for frame in frames.read(CAPSULE_MAGIC, capsule)]
    for index, (tag, payload) in enumerate(found):
        part = decode(payload) if tag == "PART" else None
        if isinstance(part, dict) and part.get("name") == "speed":
            forged = encode({**part, "values": [12] * 11})
            found[index] = (tag, forged)
            if first_seal_again:
                head = found[0][1].replace(hashlib.sha256(payload).digest(), hashlib.sha256(forged).digest())
                found[0] = ("HEAD", head)
    return frames.write(CAPSULE_MAGIC, found)


def test_a_forged_value_with_good_sums_is_named() -> None:
    held = capsules(2)
    data = frames.write(
        EXPORT_MAGIC,
        [(tag, forged_value(one, False) if one == held[0][1] else one) for tag, one in pieces(export(held))],
    )
    assert "record 1, element speed" in places(data)


def test_a_forged_value_with_good_hashes_fails_at_the_signature() -> None:
    held = capsules(1)
    forged = [(1, forged_value(held[0][1], True))]
    assert "record 1, signature" in places(export(forged))


def without(data: bytes, number: int) -> bytes:
    found = pieces(data)
    return frames.write(EXPORT_MAGIC, [one for index, one in enumerate(found) if index != 4 - 1 + number])


def test_removed_repeated_reordered() -> None:
    sound = export(capsules(3))
    head, caps = pieces(sound)[:4], pieces(sound)[4:]
    for number in (1, 2, 3):
        assert f"record {number} is listed but its capsule is not" in places(without(sound, number))
    assert "repeated" in places(frames.write(EXPORT_MAGIC, [*head, caps[0], caps[1], caps[1], caps[2]]))
    assert "reordered" in places(frames.write(EXPORT_MAGIC, [*head, caps[1], caps[0], caps[2]]))
    extra = capsules(1, signer(b"two"))[0][1]
    assert "does not list" in places(frames.write(EXPORT_MAGIC, [*head, *caps, ("CAPS", extra)]))


def test_a_record_left_out_with_a_new_manifest_is_missed_by_its_neighbours() -> None:
    held = capsules(3)
    assert "record 2 was held beside it and is missing" in places(export([held[0], held[2]]))
    assert verdict(export([held[0], held[2]], scope="selection")).holds


def test_a_record_from_another_chain_does_not_fit() -> None:
    held = capsules(2)
    place = ChainPlace(RECORDER_ID, 2, hashlib.sha256(b"something else").digest(), ())
    stranger = seal(record(), PROFILE, place, signer())
    assert "does not point at record 1" in places(export([held[0], (2, stranger)]))


def test_wrong_key() -> None:
    class Borrowed(DeviceSigner):
        """Another key under somebody's certificates."""

        @property
        def key_id(self) -> bytes:
            return signer().key_id

    thief = Borrowed(signer(b"two").private_key, signer().certificates)
    held = capsules(1, thief)
    assert "record 1, signature" in places(export(held))
    assert "manifest, signature" in places(export(capsules(1), thief))


def test_another_root_is_noticed_when_one_is_trusted() -> None:
    other = signer(b"two")
    data = export(capsules(1, other), other)
    assert verdict(data).holds
    found = verdict(data, root_of(signer()))
    assert [str(fault).split(" (")[0] for fault in found.faults] == [
        "manifest, certificates", "capsule 1, record 1, certificates",
    ]  # fmt: skip
    assert "not a trusted one" in str(found.faults[0])


def test_who_issued_and_who_sealed_are_judged_apart() -> None:
    """A service hands out what recorders under other roots signed, several of them in one file."""
    device, service = signer(b"two"), signer()
    data = export(capsules(1, device), service)
    assert verdict(data).holds and not verdict(data).root_pinned
    assert verdict(data, root_of(service), root_of(device)).holds
    for trusted, place in ((device, "manifest"), (service, "capsule 1, record 1")):
        (fault,) = verdict(data, root_of(trusted)).faults
        assert fault.place == f"{place}, certificates" and "not a trusted one" in fault.what
    assert not verify_export(data, CHECKS, NOW_MS, ()).holds


def test_expired_and_not_yet_valid_chain() -> None:
    old = signer(b"old", until_year=2021)
    data = export(capsules(1, old), old)
    assert "expired on 2021-01-01" in places(data)
    assert verdict(data, at_ms=1_600_000_000_000).holds
    assert "not valid before" in str(verdict(data, at_ms=0).faults[0])


def test_a_certificate_that_is_no_authority_cannot_vouch() -> None:
    device = signer()
    lower = signer(b"two")
    chain = (lower.certificates[0], device.certificates[0], device.certificates[1])
    faults = X509Checks().chain_faults(chain, NOW_MS)
    assert any("not issued by" in fault for fault in faults) and any("no authority" in fault for fault in faults)
    assert X509Checks().chain_faults((b"rubbish",), NOW_MS)


def test_another_edition_of_the_profile_is_said() -> None:
    place = ChainPlace(RECORDER_ID, 1, bytes(32), ())
    other = seal(record(), replace(PROFILE, sha256=bytes(32)), place, signer())
    assert "another edition" in places(export([(1, other)]))


def test_records_outside_their_profile_are_not_sealed() -> None:
    place = ChainPlace(RECORDER_ID, 1, bytes(32), ())
    good = record()
    speed = good.elements[1]
    wrong = [
        replace(good, not_available=good.not_available[1:]),
        replace(good, profile_version=99),
        replace(good, elements=(good.elements[0], replace(speed, values=(201,) * 11))),
        replace(good, elements=(good.elements[0], replace(speed, first=-9))),
        replace(good, elements=(good.elements[0], replace(speed, values=()))),
        replace(good, elements=(good.elements[0], replace(speed, step_us=0))),
    ]
    for bad in wrong:
        with pytest.raises(RecordOutsideProfile):
            seal(bad, PROFILE, place, signer())


def test_a_signature_over_a_head_is_not_one_over_something_else() -> None:
    capsule = open_capsule(capsules(1)[0][1])
    checks = X509Checks()
    assert checks.signature_holds(capsule.certificates[0], "ed25519", capsule.signed_bytes, capsule.signature)
    assert capsule.signed_bytes.startswith(SIGNED_PREFIX)
    assert not checks.signature_holds(capsule.certificates[0], "ed25519", capsule.head_bytes, capsule.signature)
    assert not checks.signature_holds(capsule.certificates[0], "none", capsule.signed_bytes, capsule.signature)


def test_open_refuses_damage() -> None:
    data = bytearray(capsules(1)[0][1])
    data[200] ^= 4
    with pytest.raises(MalformedEvidence):
        open_capsule(bytes(data))


RAW = RawMotion(tuple(range(0, 4_000, 500)), tuple(range(8)), (0,) * 8, (0,) * 8, bytes(8))


def with_raw(listed: bool = True) -> tuple[bytes, bytes]:
    """An export of one record with its raw motion, and that."""
    raw = encode_raw(RAW)
    claim = Attachment(RAW_MOTION, hashlib.sha256(raw).digest(), len(raw))
    capsule = seal(
        replace(record(), attachments=(claim,)), PROFILE, ChainPlace(RECORDER_ID, 1, bytes(32), ()), signer()
    )
    attachments = (raw,) if listed else ()
    return build_export([(1, capsule)], signer(), RECORDER_ID, NOW_MS, 9, attachments=attachments), raw


def test_raw_data_go_along_and_are_checked_against_the_signed_claim() -> None:
    data, raw = with_raw()
    found = verdict(data)
    assert found.holds and found.manifest is not None and found.manifest.attachments == (hashlib.sha256(raw).digest(),)
    (one,) = found.attachments
    assert (one.claim.name, one.record_no, decode_raw(one.data)) == (RAW_MOTION, 1, RAW)
    plain = verdict(with_raw(listed=False)[0])
    assert plain.holds and plain.attachments == (), "a claim whose data were not asked for is no fault"


def test_one_flipped_bit_in_raw_data_is_noticed_and_its_place_named() -> None:
    sound, raw = with_raw()
    first = sound.index(raw) - frames.HEAD_BYTES
    for at in range(first, len(sound)):
        flipped = bytearray(sound)
        flipped[at] ^= 1 << at % 8
        faults = verdict(bytes(flipped)).faults
        assert any(fault.first_byte <= at <= fault.last_byte for fault in faults), at
    resealed = frames.write(EXPORT_MAGIC, [*pieces(sound)[:-1], ("ATTC", raw[:-1] + b"\x01")])
    assert "attachment 1" in places(resealed) and "no capsule in the file claims" in places(resealed)


def test_raw_data_removed_repeated_or_of_nobody() -> None:
    sound, raw = with_raw()
    assert "manifest, attachments" in places(frames.write(EXPORT_MAGIC, pieces(sound)[:-1]))
    repeated = places(frames.write(EXPORT_MAGIC, [*pieces(sound), ("ATTC", raw)]))
    assert "attachment 2" in repeated and "repeated" in repeated
    assert "manifest, attachments" in places(frames.write(EXPORT_MAGIC, [*pieces(with_raw(False)[0]), ("ATTC", raw)]))
    nobodys = build_export(capsules(1), signer(), RECORDER_ID, NOW_MS, 9, attachments=(raw,))
    assert "no capsule in the file claims" in places(nobodys)
    assert "skeleton" in places(frames.write(EXPORT_MAGIC, [*pieces(sound)[:-2], *pieces(sound)[:-3:-1]]))
