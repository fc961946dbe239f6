"""An agent's own account of what it accepted, published on ``v1/{device}/up/status``.

The account is made of identities (the next sequence number of an epoch), not of counters that restart, so the
ledger can compare it with what Kafka and the store hold. ``accepted`` = 1 .. ``next_seq`` - 1.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from contracts.errors import Rejected

STATUS_FORMAT = 1


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One heartbeat; times are Unix epoch milliseconds, ``oldest_unacked_ms`` is an age."""

    device: str
    boot_epoch: int
    nonce: int
    at_ms: int
    next_seq: int
    accepted_samples: int
    acked_packets: int
    rejected_packets: int
    dropped_packets: int
    dropped_samples: int
    spooled_packets: int
    spooled_bytes: int
    oldest_unacked_ms: int
    refused_publishes: int
    written_bytes: int
    agent_version: str
    not_accepted_samples: int = 0
    """Samples that neither disk nor memory could hold: never accepted, so they have no sequence numbers.

    Since the spool was made; the only account of them."""


def encode_status(status: AgentStatus) -> bytes:
    return json.dumps({"v": STATUS_FORMAT, **asdict(status)}, separators=(",", ":")).encode()


def decode_status(data: bytes) -> AgentStatus:
    """Raises Rejected('bad_status')."""
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or body.pop("v") != STATUS_FORMAT:
            raise Rejected("bad_status", "unknown format")
        status = AgentStatus(**body)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise Rejected("bad_status", str(error)) from error
    if not all(
        isinstance(value, int) for name, value in asdict(status).items() if name not in ("device", "agent_version")
    ):
        raise Rejected("bad_status", "a number is not an integer")
    return status
