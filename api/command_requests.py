"""A request for a command from what somebody said: checked against the menu, with an id, a nonce and an expiry."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any

from api.queries.commands import Request
from contracts.command_menu import MAX_LIFE_MS, check_arguments
from contracts.errors import Rejected


def new_request(
    device: str, kind: str, arguments: dict[str, Any], asked_by: str, now: datetime, life_s: int | None = None
) -> Request:
    """A request with a fresh id and nonce. Raises Rejected when kind or arguments are not on the menu."""
    offered = check_arguments(kind, arguments)
    if not offered.offered:
        raise Rejected("unknown_kind", f"{kind} is sent by programs only")
    life = timedelta(milliseconds=offered.life_ms) if life_s is None else timedelta(seconds=life_s)
    if not timedelta(0) < life <= timedelta(milliseconds=MAX_LIFE_MS):
        raise Rejected("bad_expiry", f"a command may wait from 1 to {MAX_LIFE_MS // 1000} s")
    nonce = secrets.randbits(62) + 1
    return Request(f"c-{secrets.token_hex(8)}", None, device, kind, arguments, nonce, None, asked_by, now + life)
