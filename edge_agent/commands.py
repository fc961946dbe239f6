"""What the cloud may ask of the device; each request once, and not after its expiry.

``ping`` answers with a heartbeat at once, ``resync`` sends again what is not acknowledged, ``edr_receipt`` goes to
whoever keeps receipts (the crash recorder). Anything else is refused and counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from contracts.commands import Command, decode_command
from contracts.errors import Rejected

MAX_REMEMBERED = 1_000
"""Nonces remembered; an older repeat is stopped by its expiry."""

Handler = Callable[[Command], None]


class CommandDesk:
    """Checks commands and hands them to their handlers."""

    def __init__(self, device: str, handlers: Mapping[str, Handler]) -> None:
        self._device = device
        self._handlers = handlers
        self._seen: OrderedDict[int, None] = OrderedDict()
        self.refused = 0
        self.done = 0

    def take(self, payload: bytes, now_ms: int, clock_trusted: bool) -> bool:
        """Carry one command out; False when it was refused. An untrusted clock cannot tell what has expired."""
        try:
            command = decode_command(payload)
            handler = self._handlers[command.kind]
            expired = clock_trusted and command.expires_ms < now_ms
            refused = command.device != self._device or expired or command.nonce in self._seen
        except (Rejected, KeyError, TypeError):
            refused = True
        if refused:
            self.refused += 1
            return False
        self._seen[command.nonce] = None
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
        self.done += 1
        handler(command)
        return True
