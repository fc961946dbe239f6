"""May this capsule be believed? A function of its bytes, of who sent it and of what the store holds already.

Signature, certificates, root, profile and schema are checked by the same code as ``fleetstream edr verify``; its place
in the recorder's chain against the records on both sides of it. A predecessor that never came is no fault: it may be
on its way, or may have been overwritten by the profile's rules.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from contracts.edr.capsule import NO_PREVIOUS, Capsule
from contracts.edr.verify import EvidenceChecks, Fault, verify_capsule
from contracts.edr.wire import CapsuleParcel, event_of
from contracts.errors import Rejected

SIMULATED: Final = "simulated"
REASONS: Final = (
    ("certificates", "bad_certificates"), ("key", "wrong_key"), ("signature", "bad_signature"),
    ("record", "not_the_profile"),
)  # fmt: skip
"""Where ``verify`` finds a fault, and the code under which the capsule is kept aside."""

Trust = Literal["root", "simulated"]


@dataclass(frozen=True, slots=True)
class Beside:
    """A record that the store holds of the same recorder: its hash, and the hash that it points back to."""

    sha256: bytes
    previous_sha256: bytes


@dataclass(frozen=True, slots=True)
class Held:
    """What the store holds around a capsule. Owners are device keys; None: nobody used that recorder or key yet."""

    recorder_owner: int | None
    key_owner: int | None
    same: Beside | None
    before: Beside | None
    after: Beside | None


@dataclass(frozen=True, slots=True)
class Opened:
    """A capsule that holds in itself; where it stands is for ``place`` to say."""

    capsule: Capsule
    trust: Trust
    root_sha256: bytes


def examine(
    parcel: CapsuleParcel, device_kind: str, received_ms: int, roots: Collection[bytes], checks: EvidenceChecks
) -> Opened:
    """Everything about a capsule that its own bytes tell. Raises Rejected with the reason.

    ``roots``: SHA-256 of the roots that are trusted. A simulated record of a device registered as simulated may end in
    any root: it is marked so and is worth nothing as evidence.
    """
    capsule, faults = verify_capsule(parcel.capsule, checks, received_ms)
    if capsule is None or faults:
        raise Rejected(*_reason(faults))
    root = sha256(capsule.certificates[-1]).digest()
    trust: Trust = "root" if root in roots else "simulated"
    if trust == SIMULATED and not (capsule.record.source == SIMULATED and device_kind == SIMULATED):
        raise Rejected("unknown_root", f"its certificates end in {root.hex()[:16]}…, which is no root of ours")
    said = (parcel.event_id, parcel.record_no)
    meant = (event_of(capsule), capsule.head.place.record_no)
    if said != meant:
        raise Rejected("wrong_parcel", f"the parcel says {said}, the capsule {meant}")
    return Opened(capsule, trust, root)


def place(capsule: Capsule, held: Held, device_key: int) -> bool:
    """Whether the capsule is new (False: a repeat of what is stored). Raises Rejected when it fits nowhere."""
    at = capsule.head.place
    if held.recorder_owner not in (None, device_key):
        raise Rejected("foreign_recorder", "another device's recorder has this id")
    if held.key_owner not in (None, device_key):
        raise Rejected("foreign_key", "another device signs with this key")
    if held.same is not None:
        if held.same.sha256 == capsule.sha256:
            return False
        raise Rejected("record_conflict", f"another record {at.record_no} of this recorder is stored")
    if at.record_no == 1 and at.previous_sha256 != NO_PREVIOUS:
        raise Rejected("chain_conflict", "the first record points at a predecessor")
    if held.before is not None and at.previous_sha256 != held.before.sha256:
        raise Rejected("chain_conflict", f"it does not point at the stored record {at.record_no - 1}")
    if held.after is not None and held.after.previous_sha256 != capsule.sha256:
        raise Rejected("chain_conflict", f"the stored record {at.record_no + 1} points at another predecessor")
    return True


def _reason(faults: Collection[Fault]) -> tuple[str, str]:
    """A stable code for the first fault, and all of them in words."""
    detail = "; ".join(f"{fault.place}: {fault.what}" for fault in faults)
    first = next(iter(faults), None)
    inside = first.place.rpartition(", ")[2] if first is not None else ""
    return dict(REASONS).get(inside, "malformed_evidence"), detail
