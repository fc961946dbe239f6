"""An agent's own account of what it accepted, published on ``v1/{device}/up/status``.

The account is made of identities (the next sequence number of an epoch), not of counters that restart, so the
ledger can compare it with what Kafka and the store hold. ``accepted`` = 1 .. ``next_seq`` - 1.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from contracts.errors import Rejected

STATUS_FORMAT = 1
MAX_HELD = 64
"""Ranges of packets still held that one account names; more are told as wider ones."""

LARGEST_COUNT = 2**48
"""Bound of every count, age and stamp in an account: 30,000 such epochs still add up within a bigint."""


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

    refused_readings: int = 0
    """What sources gave and no packet can carry (no such signal, no time), in this run; their source is at fault."""

    strange_messages: int = 0
    """What came down and was not understood, in this run."""

    held: tuple[tuple[int, int, int], ...] | None = None
    """(boot epoch, first, last) of everything still in the spool, of every epoch; None: the agent does not say.

    Every packet held lies within; while they are exact their numbers add up to ``spooled_packets``."""


def encode_status(status: AgentStatus) -> bytes:
    return json.dumps({"v": STATUS_FORMAT, **asdict(status)}, separators=(",", ":")).encode()


def decode_status(data: bytes) -> AgentStatus:
    """Raises Rejected('bad_status')."""
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or body.pop("v") != STATUS_FORMAT:
            raise Rejected("bad_status", "unknown format")
        held = body.pop("held", None)
        status = AgentStatus(**body, held=None if held is None else tuple(map(_range, held)))
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise Rejected("bad_status", str(error)) from error
    _check(status)
    return status


def _check(status: AgentStatus) -> None:
    """Types and bounds of every field: JSON's ``true`` is no number, and sums over a fleet must fit a bigint."""
    told = asdict(status)
    if len(told.pop("held") or ()) > MAX_HELD:
        raise Rejected("bad_status", f"more than {MAX_HELD} ranges")
    texts = [told.pop("device"), told.pop("agent_version")]
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in told.values()):
        raise Rejected("bad_status", "a number is not an integer or a name is not text")
    nonce = told.pop("nonce")
    if not -(2**63) <= nonce < 2**63 or not all(0 <= number <= LARGEST_COUNT for number in told.values()):
        raise Rejected("bad_status", "a number is out of bounds")


def _range(held: list[int]) -> tuple[int, int, int]:
    epoch, first, last = held
    if any(type(number) is not int for number in held) or not 1 <= epoch <= LARGEST_COUNT:
        raise Rejected("bad_status", "a range is not three integers")
    if not 1 <= first <= last <= LARGEST_COUNT:
        raise Rejected("bad_status", "a range is reversed or out of bounds")
    return epoch, first, last
