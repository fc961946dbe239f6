"""Does an export hold? Offline, with nothing but its bytes; every fault is named with its place.

Signatures and certificates are checked through `EvidenceChecks`, so that this module needs no cryptographic library.
All faults are collected, not only the first: somebody has to judge what is left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from contracts.edr import frames
from contracts.edr.capsule import MAGIC as CAPSULE_MAGIC
from contracts.edr.capsule import NO_PREVIOUS, Capsule, certificates_hash, open_capsule, parse_head, split
from contracts.edr.errors import BadProfile, MalformedEvidence, RecordOutsideProfile
from contracts.edr.export import ATTACHMENT, MAGIC, SIGNED_PREFIX, Manifest, parse_manifest
from contracts.edr.profiles import load_profile
from contracts.edr.record import ATTACHMENTS_PART, EVENT_PART, MISSING_PART, Attachment, check_record


class EvidenceChecks(Protocol):
    """The cryptography that a verdict needs; certificates are DER, the signer's own first, the root last."""

    def key_id(self, certificate: bytes) -> bytes: ...
    def signature_holds(self, certificate: bytes, algorithm: str, message: bytes, signature: bytes) -> bool: ...
    def chain_faults(self, certificates: Sequence[bytes], at_ms: int) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that does not hold: where (words, and the bytes of the file it concerns) and what."""

    place: str
    what: str
    first_byte: int
    last_byte: int

    def __str__(self) -> str:
        return f"{self.place} (bytes {self.first_byte}-{self.last_byte}): {self.what}"


@dataclass(frozen=True, slots=True)
class Attached:
    """Raw data in the file that a capsule in it claims: the claim, of which record, and the bytes, checked."""

    claim: Attachment
    record_no: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an examination found. ``root_sha256``: of who issued the export; a capsule's own: ``root_of``.

    ``root_pinned`` tells whether the roots were compared with ones known beforehand.
    """

    faults: tuple[Fault, ...]
    manifest: Manifest | None
    capsules: tuple[Capsule, ...]
    root_sha256: bytes
    root_pinned: bool
    attachments: tuple[Attached, ...] = ()

    @property
    def holds(self) -> bool:
        """True only if nothing at all is wrong."""
        return not self.faults


@dataclass(frozen=True, slots=True)
class _Found:
    """A capsule's frame and, when it could be opened, what was in it."""

    frame: frames.Frame
    label: str
    capsule: Capsule | None

    def fault(self, what: str, inside: str = "") -> Fault:
        place = f"{self.label}, {inside}" if inside else self.label
        return Fault(place, what, self.frame.first_byte, self.frame.last_byte)


NOT_ELEMENTS: Final = (EVENT_PART, MISSING_PART, ATTACHMENTS_PART)
_SKELETON: Final = "skeleton of the file"


def root_of(capsule: Capsule) -> bytes:
    """SHA-256 of the root that a capsule's certificates end in."""
    return hashlib.sha256(capsule.certificates[-1]).digest()


def verify_export(
    data: bytes, checks: EvidenceChecks, at_ms: int, trusted_roots_sha256: Collection[bytes] | None = None
) -> Verdict:
    """The verdict on an export as of ``at_ms`` (milliseconds since 1970, for the certificates' dates).

    Who issued the export and who sealed a capsule may answer to different roots: a service hands out what recorders
    of several makers signed. Each is judged by itself; with ``trusted_roots_sha256`` each must end in one of those.
    """
    try:
        found = frames.read(MAGIC, data)
        tags = [frame.tag for frame in found]
        counts = [(tag, tags.count(tag)) for tag in ("CERT", "CAPS", ATTACHMENT)]
        certificates, capsules = counts[0][1], counts[1][1]
        if not certificates or tags != ["MANI", "MSIG", *(tag for tag, count in counts for _ in range(count))]:
            raise MalformedEvidence("pieces are not manifest, signature, certificates, capsules, data", len(MAGIC))
    except MalformedEvidence as bad:
        last = max(len(data) - 1, bad.offset)
        return Verdict((Fault(_SKELETON, str(bad), bad.offset, last),), None, (), b"", False)
    faults: list[Fault] = []
    chain = found[2 : 2 + certificates]
    manifest = _manifest(found[0], found[1], chain, checks, at_ms, faults)
    opened = [
        _capsule(frame, place, manifest, checks, at_ms, faults)
        for place, frame in enumerate(found[2 + certificates : 2 + certificates + capsules], 1)
    ]
    attached = _attached(found[2 + certificates + capsules :], opened, manifest, found[0], faults)
    if manifest is not None:
        _compare_with_manifest(manifest, opened, found[0], faults)
    _follow_chain(opened, manifest, faults)
    root = hashlib.sha256(chain[-1].payload).digest()
    if trusted_roots_sha256 is not None:
        _trusted(opened, chain[-1], root, trusted_roots_sha256, faults)
    good = tuple(item.capsule for item in opened if item.capsule is not None)
    return Verdict(tuple(faults), manifest, good, root, trusted_roots_sha256 is not None, attached)


def verify_capsule(
    data: bytes, checks: EvidenceChecks, at_ms: int, trusted_roots_sha256: Collection[bytes] | None = None
) -> tuple[Capsule | None, tuple[Fault, ...]]:
    """One capsule by itself, as it came from a device: the capsule when it could be opened, and every fault.

    Its place in the recorder's chain is for the caller to compare with what it holds: ``head.place``.
    """
    faults: list[Fault] = []
    last = max(0, len(data) - 1)
    found = _capsule(frames.Frame("CAPS", data, -frames.HEAD_BYTES, last), 1, None, checks, at_ms, faults)
    if found.capsule is not None and trusted_roots_sha256 is not None:
        _trusted_capsule(found, found.capsule, trusted_roots_sha256, faults)
    whole = tuple(Fault(fault.place, fault.what, max(0, fault.first_byte), fault.last_byte) for fault in faults)
    return found.capsule, whole


def _manifest(
    frame: frames.Frame,
    signature: frames.Frame,
    chain: Sequence[frames.Frame],
    checks: EvidenceChecks,
    at_ms: int,
    faults: list[Fault],
) -> Manifest | None:
    damaged = [(frame, "manifest"), (signature, "manifest's signature")]
    damaged += [(certificate, f"manifest's certificate {number}") for number, certificate in enumerate(chain, 1)]
    before = len(faults)
    faults += [Fault(name, one.damage, one.first_byte, one.last_byte) for one, name in damaged if one.damage]
    if len(faults) > before:
        return None
    try:
        manifest = parse_manifest(frame.payload)
    except MalformedEvidence as bad:
        faults.append(Fault("manifest", str(bad), frame.first_byte, frame.last_byte))
        return None
    certificates = [one.payload for one in chain]
    problems = _signer_problems(
        certificates, manifest.certificates_sha256, manifest.key_id, manifest.algorithm,
        SIGNED_PREFIX + frame.payload, signature.payload, checks, at_ms,
    )  # fmt: skip
    faults += [Fault(f"manifest, {inside}", what, frame.first_byte, chain[-1].last_byte) for inside, what in problems]
    return manifest


def _signer_problems(
    certificates: Sequence[bytes],
    certificates_sha256: bytes,
    key_id: bytes,
    algorithm: str,
    message: bytes,
    signature: bytes,
    checks: EvidenceChecks,
    at_ms: int,
) -> list[tuple[str, str]]:
    problems: list[tuple[str, str]] = []
    if certificates_hash(certificates) != certificates_sha256:
        problems.append(("certificates", "they are not those that were signed for"))
    chain_faults = checks.chain_faults(certificates, at_ms)
    problems += [("certificates", what) for what in chain_faults]
    try:
        if checks.key_id(certificates[0]) != key_id:
            problems.append(("key", "the certificate belongs to another key"))
        if not checks.signature_holds(certificates[0], algorithm, message, signature):
            problems.append(("signature", "it was not made over these bytes by the certificate's key"))
    except MalformedEvidence as bad:
        problems.append(("certificates", str(bad)))
    return problems


def _capsule(
    frame: frames.Frame,
    position: int,
    manifest: Manifest | None,
    checks: EvidenceChecks,
    at_ms: int,
    faults: list[Fault],
) -> _Found:
    listed = manifest.capsules if manifest is not None else ()
    numbers = {sha256: number for number, sha256 in listed}
    number = numbers.get(hashlib.sha256(frame.payload).digest())
    if number is None and position <= len(listed):
        number = listed[position - 1][0]
    label = f"capsule {position}" if number is None else f"capsule {position}, record {number}"
    inner = _damage_inside(frame, label)
    if frame.damage and not inner:
        inner = [Fault(label, frame.damage, frame.first_byte, frame.last_byte)]
    if inner:
        faults += inner
        return _Found(frame, label, None)
    try:
        capsule = open_capsule(frame.payload)
    except (MalformedEvidence, RecordOutsideProfile) as bad:
        faults.append(Fault(label, str(bad), frame.first_byte, frame.last_byte))
        return _Found(frame, label, None)
    found = _Found(frame, f"capsule {position}, record {capsule.head.place.record_no}", capsule)
    problems = _signer_problems(
        capsule.certificates, capsule.head.certificates_sha256, capsule.head.key_id, capsule.head.algorithm,
        capsule.signed_bytes, capsule.signature, checks, at_ms,
    )  # fmt: skip
    faults += [found.fault(what, inside) for inside, what in problems]
    faults += [found.fault(what, "record") for what in _record_problems(capsule)]
    return found


def _damage_inside(frame: frames.Frame, label: str) -> list[Fault]:
    """Which piece of a capsule fails its sum or its hash, in bytes of the whole file."""
    base = frame.first_byte + frames.HEAD_BYTES
    try:
        pieces = frames.read(CAPSULE_MAGIC, frame.payload)
        head, parts, _, _ = split(pieces)
    except MalformedEvidence as bad:
        return [Fault(f"{label}, skeleton", str(bad), base + bad.offset, frame.last_byte)]
    names = [f"part {number}" for number in range(1, len(parts) + 1)]
    expected: list[bytes | None] = [None] * len(parts)
    if head.damage is None:
        try:
            listed = parse_head(head.payload).parts
        except MalformedEvidence as bad:
            return [Fault(f"{label}, head", str(bad), base + head.first_byte, base + head.last_byte)]
        if len(listed) == len(parts):
            names = [f"element {name}" if name not in NOT_ELEMENTS else name for name, _ in listed]
            expected = [sha256 for _, sha256 in listed]
    faults = []
    hashes = dict(zip((id(part) for part in parts), zip(names, expected, strict=True), strict=True))
    for piece in pieces:
        name, sha256 = hashes.get(
            id(piece), ({"HEAD": "head", "SIGN": "signature"}.get(piece.tag, "certificate"), None)
        )
        what = piece.damage
        if what is None and sha256 is not None and hashlib.sha256(piece.payload).digest() != sha256:
            what = "its hash is not the one that was signed"
        if what:
            faults.append(Fault(f"{label}, {name}", what, base + piece.first_byte, base + piece.last_byte))
    return faults


def _record_problems(capsule: Capsule) -> list[str]:
    try:
        profile = load_profile(capsule.head.profile)
        if (profile.version, profile.sha256) != (capsule.head.profile_version, capsule.head.profile_sha256):
            return [f"made with another edition of profile {profile.name} than the one known here"]
        check_record(capsule.record, profile)
    except (BadProfile, RecordOutsideProfile) as bad:
        return [str(bad)]
    return []


def _compare_with_manifest(
    manifest: Manifest, opened: Sequence[_Found], frame: frames.Frame, faults: list[Fault]
) -> None:
    present = [hashlib.sha256(item.frame.payload).digest() for item in opened]
    listed = {sha256: number for number, sha256 in manifest.capsules}
    seen: set[bytes] = set()
    for item, sha256 in zip(opened, present, strict=True):
        if sha256 in seen:
            faults.append(item.fault("repeated: the same capsule stands earlier in the file"))
        elif sha256 not in listed:
            faults.append(item.fault("the manifest does not list a capsule with this hash"))
        if item.capsule is not None and item.capsule.head.place.recorder_id != manifest.recorder_id:
            faults.append(item.fault("it comes from another recorder than the manifest says"))
        seen.add(sha256)
    for number, sha256 in manifest.capsules:
        if sha256 not in seen:
            what = f"record {number} is listed but its capsule is not in the file as it was"
            faults.append(Fault(f"manifest, record {number}", what, frame.first_byte, frame.last_byte))
    if sorted(present) == sorted(listed) and present != list(listed):
        moved = next(item for item, want, have in zip(opened, listed, present, strict=True) if want != have)
        faults.append(moved.fault("reordered: another record stands here in the manifest"))


def _attached(
    data: Sequence[frames.Frame],
    opened: Sequence[_Found],
    manifest: Manifest | None,
    listing: frames.Frame,
    faults: list[Fault],
) -> tuple[Attached, ...]:
    """Raw data against the signed claims of the capsules; what a capsule claims need not be in the file."""
    claims = {
        one.sha256: (one, item.capsule.head.place.record_no)
        for item in opened if item.capsule is not None for one in item.capsule.record.attachments
    }  # fmt: skip
    attached, present = [], []
    for number, frame in enumerate(data, 1):
        digest = hashlib.sha256(frame.payload).digest()
        claim, record_no = claims.get(digest, (None, 0))
        what = frame.damage
        if what is None and digest in present:
            what = "repeated: the same data stand earlier in the file"
        elif what is None and (claim is None or claim.size_bytes != len(frame.payload)):
            what = "no capsule in the file claims data with this hash and size"
        if what is not None:
            faults.append(Fault(f"attachment {number}", what, frame.first_byte, frame.last_byte))
        elif claim is not None:
            attached.append(Attached(claim, record_no, frame.payload))
        present.append(digest)
    if manifest is not None and tuple(present) != manifest.attachments:
        what = "the attachments in the file are not those that are listed, in their order"
        faults.append(Fault("manifest, attachments", what, listing.first_byte, listing.last_byte))
    return tuple(attached)


def _follow_chain(opened: Sequence[_Found], manifest: Manifest | None, faults: list[Fault]) -> None:
    """Every capsule must point at its predecessor; a gap needs the newest capsule's word that it was overwritten."""
    held = [(item, item.capsule) for item in opened if item.capsule is not None]
    if not held:
        return
    by_number = {capsule.head.place.record_no: capsule for _, capsule in held}
    for item, capsule in held:
        place = capsule.head.place
        before = by_number.get(place.record_no - 1)
        if place.record_no == 1 and place.previous_sha256 != NO_PREVIOUS:
            faults.append(item.fault("the first record points at a predecessor", "chain"))
        if before is not None and before.sha256 != place.previous_sha256:
            faults.append(item.fault(f"it does not point at record {place.record_no - 1}", "chain"))
        for kept in place.kept:
            other = by_number.get(kept.record_no)
            if other is not None and other.sha256 != kept.sha256:
                faults.append(item.fault(f"it remembers another record {kept.record_no}", "chain"))
    newest_item, newest = max(held, key=lambda pair: pair[1].head.place.record_no)
    if manifest is not None and manifest.scope == "all_held":
        for kept in newest.head.place.kept:
            if kept.record_no not in by_number:
                faults.append(newest_item.fault(f"record {kept.record_no} was held beside it and is missing", "chain"))


def _trusted(
    opened: Sequence[_Found], last: frames.Frame, root: bytes, trusted: Collection[bytes], faults: list[Fault]
) -> None:
    if root not in trusted:
        what = f"who issued the export answers to root {root.hex()[:16]}…, which is not a trusted one"
        faults.append(Fault("manifest, certificates", what, last.first_byte, last.last_byte))
    for item in opened:
        if item.capsule is not None:
            _trusted_capsule(item, item.capsule, trusted, faults)


def _trusted_capsule(found: _Found, capsule: Capsule, trusted: Collection[bytes], faults: list[Fault]) -> None:
    root = root_of(capsule)
    if root not in trusted:
        what = f"who sealed it answers to root {root.hex()[:16]}…, which is not a trusted one"
        faults.append(found.fault(what, "certificates"))
