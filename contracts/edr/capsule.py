"""The capsule: one record sealed into bytes that never change again.

Head (what it is, its place in the recorder's chain, the hash of every part), the parts, the signature over the head,
and the signer's certificates. The head's hashes tie everything to the signature; hashing each part by itself lets a
reader name the element whose bytes were touched. The hash of the whole capsule is what the next one points back to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from contracts.edr import frames
from contracts.edr.cbor import Value, decode, encode
from contracts.edr.errors import MalformedEvidence
from contracts.edr.profiles import Profile
from contracts.edr.record import SCHEMA_VERSION, EventRecord, check_record, from_parts, to_parts

MAGIC: Final = b"FSEC\x01"
SIGNED_PREFIX: Final = b"fleetstream edr capsule 1\0"
"""Keeps a signature over a head from being read as one over anything else."""

HASH_BYTES: Final = 32
NO_PREVIOUS: Final = bytes(HASH_BYTES)
MAX_CAPSULE_BYTES: Final = 96 * 1024
"""Below the 128 KiB that one message may carry, with room for the packet around it."""

HEAD_KEYS: Final = frozenset(
    "schema profile profile_version profile_sha256 recorder_id record_no previous_sha256 kept key_id algorithm"
    " certificates_sha256 parts".split()
)


class Signer(Protocol):
    """The device's key as the sealer sees it; ``certificates`` are DER, the signer's own first, the root last."""

    @property
    def key_id(self) -> bytes: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def certificates(self) -> tuple[bytes, ...]: ...
    def sign(self, message: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """A record that the recorder holds: its number and its capsule's hash."""

    record_no: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class ChainPlace:
    """Where in a recorder's life a capsule stands: its number, its predecessor and what else is held beside it."""

    recorder_id: bytes
    record_no: int
    previous_sha256: bytes
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """What is signed."""

    schema: int
    profile: str
    profile_version: int
    profile_sha256: bytes
    place: ChainPlace
    key_id: bytes
    algorithm: str
    certificates_sha256: bytes
    parts: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Capsule:
    """An opened capsule. Opening checks hashes and shape, not the signature: that is ``verify``'s."""

    head: Head
    head_bytes: bytes
    signature: bytes
    certificates: tuple[bytes, ...]
    record: EventRecord
    sha256: bytes

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that the signature covers."""
        return SIGNED_PREFIX + self.head_bytes


def certificates_hash(certificates: Sequence[bytes]) -> bytes:
    """One hash for a chain, each certificate with its length so that no two chains share it."""
    digest = hashlib.sha256()
    for certificate in certificates:
        digest.update(len(certificate).to_bytes(4, "big") + certificate)
    return digest.digest()


def seal(record: EventRecord, profile: Profile, place: ChainPlace, signer: Signer) -> bytes:
    """The capsule's bytes: same input, same bytes. Raises RecordOutsideProfile; ValueError when it grows too large."""
    check_record(record, profile)
    parts = [(name, encode(value)) for name, value in to_parts(record)]
    head = encode(
        {
            "schema": SCHEMA_VERSION,
            "profile": profile.name,
            "profile_version": profile.version,
            "profile_sha256": profile.sha256,
            "recorder_id": place.recorder_id,
            "record_no": place.record_no,
            "previous_sha256": place.previous_sha256,
            "kept": [[kept.record_no, kept.sha256] for kept in place.kept],
            "key_id": signer.key_id,
            "algorithm": signer.algorithm,
            "certificates_sha256": certificates_hash(signer.certificates),
            "parts": [[name, hashlib.sha256(data).digest()] for name, data in parts],
        }
    )
    pieces = [("HEAD", head), *(("PART", data) for _, data in parts), ("SIGN", signer.sign(SIGNED_PREFIX + head))]
    pieces += [("CERT", certificate) for certificate in signer.certificates]
    capsule = frames.write(MAGIC, pieces)
    if len(capsule) > MAX_CAPSULE_BYTES:
        raise ValueError(f"capsule of {len(capsule)} bytes is over the limit of {MAX_CAPSULE_BYTES}")
    return capsule


def open_capsule(data: bytes) -> Capsule:
    """The capsule of these bytes. Raises MalformedEvidence or RecordOutsideProfile at the first fault."""
    found = frames.read(MAGIC, data)
    for frame in found:
        if frame.damage:
            raise MalformedEvidence(f"{frame.tag}: {frame.damage}", frame.first_byte)
    head_frame, parts, signature, certificates = split(found)
    head = parse_head(head_frame.payload)
    hashes = [hashlib.sha256(part.payload).digest() for part in parts]
    if hashes != [sha256 for _, sha256 in head.parts]:
        raise MalformedEvidence("the parts are not those that the head lists", head_frame.first_byte)
    if certificates_hash([frame.payload for frame in certificates]) != head.certificates_sha256:
        raise MalformedEvidence("the certificates are not those that the head lists", certificates[0].first_byte)
    named = [(name, decode(part.payload)) for (name, _), part in zip(head.parts, parts, strict=True)]
    return Capsule(
        head=head,
        head_bytes=head_frame.payload,
        signature=signature.payload,
        certificates=tuple(frame.payload for frame in certificates),
        record=from_parts(named),
        sha256=hashlib.sha256(data).digest(),
    )


def split(found: Sequence[frames.Frame]) -> tuple[frames.Frame, list[frames.Frame], frames.Frame, list[frames.Frame]]:
    """Head, parts, signature, certificates. Raises MalformedEvidence when the frames are not in that order."""
    tags = [frame.tag for frame in found]
    parts, certificates = tags.count("PART"), tags.count("CERT")
    if not parts or not certificates or tags != ["HEAD", *["PART"] * parts, "SIGN", *["CERT"] * certificates]:
        raise MalformedEvidence("frames are not head, parts, signature, certificates", 0)
    return found[0], list(found[1 : 1 + parts]), found[1 + parts], list(found[2 + parts :])


def parse_head(data: bytes) -> Head:
    """The head of these CBOR bytes. Raises MalformedEvidence."""
    raw = decode(data)
    if not isinstance(raw, Mapping) or set(raw) != HEAD_KEYS:
        raise MalformedEvidence("the head has other keys than it must", 0)
    if raw["schema"] != SCHEMA_VERSION:
        raise MalformedEvidence(f"schema {raw['schema']!r} is not known here", 0)
    place = ChainPlace(
        recorder_id=_bytes(raw["recorder_id"]),
        record_no=whole(raw["record_no"]),
        previous_sha256=_hash(raw["previous_sha256"]),
        kept=tuple(Kept(whole(number), _hash(sha256)) for number, sha256 in pairs(raw["kept"])),
    )
    return Head(
        schema=SCHEMA_VERSION,
        profile=text(raw["profile"]),
        profile_version=whole(raw["profile_version"]),
        profile_sha256=_hash(raw["profile_sha256"]),
        place=place,
        key_id=_bytes(raw["key_id"]),
        algorithm=text(raw["algorithm"]),
        certificates_sha256=_hash(raw["certificates_sha256"]),
        parts=tuple((text(name), _hash(sha256)) for name, sha256 in pairs(raw["parts"])),
    )


def pairs(value: Value) -> list[tuple[Value, Value]]:
    """A list of two-item lists. Raises MalformedEvidence."""
    if not isinstance(value, list) or not all(isinstance(item, list) and len(item) == 2 for item in value):
        raise MalformedEvidence("not a list of pairs", 0)
    return [(item[0], item[1]) for item in value if isinstance(item, list)]


def text(value: Value) -> str:
    """Text or MalformedEvidence."""
    if not isinstance(value, str):
        raise MalformedEvidence(f"{value!r} is not text", 0)
    return value


def whole(value: Value) -> int:
    """A whole number from zero up, or MalformedEvidence."""
    if type(value) is not int or value < 0:
        raise MalformedEvidence(f"{value!r} is not a whole number", 0)
    return value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise MalformedEvidence(f"{value!r} is not a byte string", 0)
    return value


def _hash(value: Value) -> bytes:
    if not isinstance(value, bytes) or len(value) != HASH_BYTES:
        raise MalformedEvidence("a hash has 32 bytes", 0)
    return value
