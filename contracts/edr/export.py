"""The export: capsules handed out together, with a signed list of what was handed out.

The list (manifest) makes a removed, repeated or reordered capsule visible even at the end of the chain. It also holds
what is known only at download: the time of issue, and the ignition cycle where the recorder itself issues (a store is
not at the vehicle: None). Its signer is the recorder itself or the service that exports; offline nothing else is
needed to check it. Raw data that a capsule claims by hash may go along; the manifest lists these too (schema 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.edr import frames
from contracts.edr.capsule import Signer, certificates_hash, pairs, text, whole
from contracts.edr.cbor import Value, decode, encode
from contracts.edr.errors import MalformedEvidence

MAGIC: Final = b"FSEX\x01"
SIGNED_PREFIX: Final = b"fleetstream edr export 1\0"
SCHEMA_VERSION: Final = 1
WITH_ATTACHMENTS: Final = 2
"""Schema of a manifest that lists attachments; without any, a manifest has the same bytes as before."""

SCOPES: Final = ("all_held", "selection")
MAX_CAPSULES: Final = 10_000
ATTACHMENT: Final = "ATTC"
"""Tag of a piece that is one whole attachment, after all capsules."""

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
    attachments: tuple[bytes, ...] = ()


def build_export(
    capsules: Sequence[tuple[int, bytes]],
    signer: Signer,
    recorder_id: bytes,
    issued_at_ms: int,
    ignition_cycle_download: int | None,
    scope: str = "all_held",
    attachments: Sequence[bytes] = (),
) -> bytes:
    """One file from (record number, capsule bytes) in the order of their numbers, and data that they claim."""
    numbers = [number for number, _ in capsules]
    if scope not in SCOPES or len(capsules) > MAX_CAPSULES or numbers != sorted(set(numbers)):
        raise ValueError("capsules must be in rising order of their numbers, at most 10,000, with a known scope")
    listed = [hashlib.sha256(data).digest() for data in attachments]
    manifest = encode(
        {
            "schema": WITH_ATTACHMENTS if listed else SCHEMA_VERSION,
            **({"attachments": listed} if listed else {}),
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
    pieces += [(ATTACHMENT, data) for data in attachments]
    return frames.write(MAGIC, pieces)


def parse_manifest(data: bytes) -> Manifest:
    """The manifest of these CBOR bytes. Raises MalformedEvidence."""
    raw = decode(data)
    keys = {SCHEMA_VERSION: _KEYS, WITH_ATTACHMENTS: _KEYS | {"attachments"}}
    if not isinstance(raw, Mapping) or frozenset(raw) != keys.get(_schema(raw)):
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
        attachments=_hashes(raw.get("attachments", [])),
    )


def _schema(raw: Mapping[str, Value]) -> int:
    schema = raw.get("schema")
    return schema if type(schema) is int else 0


def _hashes(value: Value) -> tuple[bytes, ...]:
    if not isinstance(value, list):
        raise MalformedEvidence("the list of attachments is none", 0)
    hashes = tuple(one for one in value if isinstance(one, bytes))
    if len(hashes) != len(value):
        raise MalformedEvidence("an attachment's hash is not a byte string", 0)
    return hashes
