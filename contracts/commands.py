"""What the cloud may ask of a device: JSON on ``v1/{device}/down/cmd`` and on the commands topic.

Every command carries an id, a nonce (so that a repeat is recognised) and an expiry; an agent answers on its
status channel and ignores a nonce that it has seen.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from contracts.errors import Rejected

COMMAND_FORMAT = 1
KINDS = ("ping", "resync", "edr_receipt")


@dataclass(frozen=True, slots=True)
class Command:
    """One request; ``expires_ms`` is Unix epoch milliseconds."""

    command_id: str
    device: str
    kind: str
    nonce: int
    expires_ms: int
    arguments: dict[str, Any] = field(default_factory=dict)


def encode_command(command: Command) -> bytes:
    return json.dumps({"v": COMMAND_FORMAT, **asdict(command)}, separators=(",", ":")).encode()


def decode_command(data: bytes) -> Command:
    """Raises Rejected('bad_command')."""
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or body.pop("v") != COMMAND_FORMAT or body["kind"] not in KINDS:
            raise Rejected("bad_command", "unknown format or kind")
        return Command(**body)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise Rejected("bad_command", str(error)) from error
