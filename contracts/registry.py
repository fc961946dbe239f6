"""Registered devices as they travel from PostgreSQL to the gateway: a compacted topic keyed by device name.

A record with an empty value removes the device. The key ``$beat`` carries the relay's clock every few seconds,
so that a gateway can alarm on the age of what it knows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from contracts.errors import Rejected

BEAT_KEY = "$beat"
KINDS = ("device", "simulated", "recording")
"""Of devices."""

ASSET_KINDS = ("car", "truck", "turbine", "pump", "process", "other")
"""Of what devices measure."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One device as the gateway needs to know it."""

    device: str
    device_key: int
    tenant: str
    tenant_id: int
    kind: str = "device"


def encode_registration(registration: Registration) -> bytes:
    return json.dumps(asdict(registration), separators=(",", ":")).encode()


def decode_registration(data: bytes) -> Registration:
    """Raises Rejected('bad_registration')."""
    try:
        return Registration(**json.loads(data))
    except (ValueError, RecursionError, TypeError) as error:
        raise Rejected("bad_registration", str(error)) from error


def encode_beat(at_ms: int) -> bytes:
    return json.dumps({"at_ms": at_ms}).encode()


def decode_beat(data: bytes) -> int:
    """The relay's clock, Unix epoch milliseconds. Raises Rejected('bad_beat')."""
    try:
        return int(json.loads(data)["at_ms"])
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise Rejected("bad_beat", str(error)) from error
