"""The export: capsules handed out together, with a signed list of what was handed out.

The list (manifest) makes a removed, repeated or reordered capsule visible even at the end of the chain. It also holds
what is known only at download: the ignition cycle and the time of issue. Its signer is the recorder itself or the
service that exports; offline nothing else is needed to check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.edr import frames
from contracts.edr.capsule import Signer, certificates_hash, pairs, text, whole
from contracts.edr.cbor import decode, encode
from contracts.edr.errors import MalformedEvidence

MAGIC: Final = b"FSEX\x01"
SIGNED_PREFIX: Final = b"fleetstream edr export 1\0"
SCHEMA_VERSION: Final = 1
SCOPES: Final = ("all_held", "selection")
MAX_CAPSULES: Final = 10_000
NOTICE: Final = "telematics record in the format of an event data recorder; not the download of a regulated recorder"

_KEYS: Final = frozenset(
    "schema notice scope issued_at_ms ignition_cycle_download recorder_id capsules key_id algorithm"
    " certificates_sha256".split()
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an export says of itself. ``scope`` all_held: everything that the recorder held when it was issued."""

    scope: str
    issued_at_ms: int
    ignition_cycle_download: int | None
    recorder_id: bytes
    capsules: tuple[tuple[int, bytes], ...]
    key_id: bytes
    algorithm: str
    certificates_sha256: bytes


def build_export(
    capsules: Sequence[tuple[int, bytes]],
    signer: Signer,
    recorder_id: bytes,
    issued_at_ms: int,
    ignition_cycle_download: int | None,
    scope: str = "all_held",
) -> bytes:
    """One file from (record number, capsule bytes) in the order of their numbers."""
    numbers = [number for number, _ in capsules]
    if scope not in SCOPES or len(capsules) > MAX_CAPSULES or numbers != sorted(set(numbers)):
        raise ValueError("capsules must be in rising order of their numbers, at most 10,000, with a known scope")
    manifest = encode(
        {
            "schema": SCHEMA_VERSION,
            "notice": NOTICE,
            "scope": scope,
            "issued_at_ms": issued_at_ms,
            "ignition_cycle_download": ignition_cycle_download,
            "recorder_id": recorder_id,
            "capsules": [[number, hashlib.sha256(data).digest()] for number, data in capsules],
            "key_id": signer.key_id,
            "algorithm": signer.algorithm,
            "certificates_sha256": certificates_hash(signer.certificates),
        }
    )
    pieces = [("MANI", manifest), ("MSIG", signer.sign(SIGNED_PREFIX + manifest))]
    pieces += [("CERT", certificate) for certificate in signer.certificates]
    pieces += [("CAPS", data) for _, data in capsules]
    return frames.write(MAGIC, pieces)


def parse_manifest(data: bytes) -> Manifest:
    """The manifest of these CBOR bytes. Raises MalformedEvidence."""
    raw = decode(data)
    if not isinstance(raw, Mapping) or set(raw) != _KEYS or raw["schema"] != SCHEMA_VERSION:
        raise MalformedEvidence("the manifest has other keys or another schema than it must", 0)
    download, recorder_id, key_id = raw["ignition_cycle_download"], raw["recorder_id"], raw["key_id"]
    chain, scope = raw["certificates_sha256"], text(raw["scope"])
    if not (isinstance(recorder_id, bytes) and isinstance(key_id, bytes) and isinstance(chain, bytes)):
        raise MalformedEvidence("recorder, key or certificates are not byte strings", 0)
    if scope not in SCOPES or raw["notice"] != NOTICE:
        raise MalformedEvidence("scope or notice is not known", 0)
    listed = []
    for number, sha256 in pairs(raw["capsules"]):
        if not isinstance(sha256, bytes):
            raise MalformedEvidence("a capsule's hash is not a byte string", 0)
        listed.append((whole(number), sha256))
    return Manifest(
        scope=scope,
        issued_at_ms=whole(raw["issued_at_ms"]),
        ignition_cycle_download=None if download is None else whole(download),
        recorder_id=recorder_id,
        capsules=tuple(listed),
        key_id=key_id,
        algorithm=text(raw["algorithm"]),
        certificates_sha256=chain,
    )
