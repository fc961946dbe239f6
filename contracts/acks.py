"""The end-to-end acknowledgement: which sequence numbers Kafka holds, told to the device as ranges.

Sent by the gateway on ``v1/{device}/down/ack`` after ``acks=all``; the only thing that frees an agent's spool.
``rejected`` ranges went to the dead-letter topic with a reason: they are safe but will never be readings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from contracts.errors import Rejected
from contracts.ranges import Range, normalise

ACK_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Ack:
    """Confirmed and rejected sequence numbers of one boot epoch."""

    boot_epoch: int
    nonce: int
    confirmed: tuple[Range, ...]
    rejected: tuple[Range, ...] = ()


def encode_ack(ack: Ack) -> bytes:
    body = {"v": ACK_FORMAT, "epoch": ack.boot_epoch, "nonce": ack.nonce, "ok": ack.confirmed, "no": ack.rejected}
    return json.dumps(body, separators=(",", ":")).encode()


def decode_ack(data: bytes) -> Ack:
    """Raises Rejected('bad_ack')."""
    try:
        body = json.loads(data)
        if body["v"] != ACK_FORMAT:
            raise Rejected("bad_ack", f"format {body['v']}")
        return Ack(int(body["epoch"]), int(body["nonce"]), _ranges(body["ok"]), _ranges(body["no"]))
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise Rejected("bad_ack", str(error)) from error


def _ranges(pairs: list[list[int]]) -> tuple[Range, ...]:
    return normalise((int(first), int(last)) for first, last in pairs)
