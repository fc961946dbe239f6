"""What the cloud may ask of the device: each request carried out once, never after its expiry, always answered.

The desk checks a command, writes down that it begins, hands it to its handler and keeps the answer until the uplink
takes it. A repeat is answered again from memory, also of what expired or was refused: for the cloud that is final, so
it is never carried out later, whatever the clock then says. ``edr_receipt`` goes to whoever keeps receipts (the crash
recorder), as often as it comes. What is not addressed to this device, or cannot be read, is counted and left alone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.command_menu import MENU, check_arguments
from contracts.commands import IDENTITY_CHANGED, Answer, Command, Outcome, decode_command
from contracts.errors import Rejected
from contracts.identity import IdentityNotice
from edge_agent.command_memory import CommandMemory, lives_too_long
from edge_agent.errors import SpoolFullError

log = logging.getLogger("edge_agent.commands")
MAX_UNSENT = 50
"""Answers that wait for the link; the oldest is forgotten beyond it, since the cloud asks again."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a handler ended well: what to tell the cloud, what to remember over restarts."""

    detail: dict[str, Any] = field(default_factory=dict)
    keep: dict[str, Any] = field(default_factory=dict)


Handler = Callable[[Command], Done | None]
"""Carries a command out. Raises Rejected when it will not; None is an empty ``Done``."""


class CommandDesk:
    """Checks commands, hands them to their handlers, keeps their answers."""

    def __init__(self, device: str, handlers: Mapping[str, Handler], memory: CommandMemory) -> None:
        self._device = device
        self._handlers = handlers
        self._memory = memory
        self.unsent: deque[Answer] = deque(maxlen=MAX_UNSENT)
        self.refused = 0
        """Not carried out: unreadable, a stranger's, expired, a repeat, or refused with a reason."""
        self.done = 0

    def take(self, payload: bytes, now_ms: int, clock_trusted: bool) -> bool:
        """Carry one command out; False when it was not. An untrusted clock cannot tell what has expired."""
        done = self._take(payload, now_ms, clock_trusted)
        self.done += done
        self.refused += not done
        return done

    def tell_identity(self, notice: IdentityNotice, boot_epoch: int, now_ms: int) -> None:
        """An answer to no command: this device goes on under another epoch."""
        name = f"identity-{notice.boot_epoch}-{boot_epoch}"
        detail = {"from_epoch": notice.boot_epoch, "to_epoch": boot_epoch, "highest": notice.highest}
        self._answer(Answer(name, self._device, notice.nonce, Outcome.DONE, IDENTITY_CHANGED, now_ms, detail))

    def _take(self, payload: bytes, now_ms: int, clock_trusted: bool) -> bool:
        try:
            command = decode_command(payload)
        except Rejected:
            return False
        if command.device != self._device:
            return False
        known = self._memory.entries.get(command.nonce)
        if known is not None:
            self._answer(known.answer or _said(command, now_ms, Outcome.UNKNOWN, "interrupted"))
            return False
        if _is_remembered(command) and self._memory.may_have_seen(command, now_ms, clock_trusted):
            self._answer(_said(command, now_ms, Outcome.UNKNOWN, "memory_lost"))
            return False
        if clock_trusted and command.expires_ms < now_ms:
            self._decline(command, _said(command, now_ms, Outcome.EXPIRED, ""), clock_trusted)
            return False
        try:
            kind = check_arguments(command.kind, command.arguments)
            handler = self._handler(command.kind)
            if not kind.remembered:
                handler(command)
                return True
            return self._carry_out(command, handler, now_ms, clock_trusted)
        except Rejected as error:
            detail = {"text": error.detail[:200]}
            self._decline(command, _said(command, now_ms, Outcome.REFUSED, error.reason, detail), clock_trusted)
            return False

    def _decline(self, command: Command, answer: Answer, clock_trusted: bool) -> None:
        """Tell it once it is written down. Otherwise say nothing: the cloud asks again while there is time."""
        try:
            if _is_remembered(command) and not self._memory.decline(command, answer, answer.at_ms, clock_trusted):
                raise SpoolFullError("the memory of commands is full")
        except SpoolFullError as error:
            log.warning("event=command_waits command=%s reason=%r", command.command_id, str(error))
            return
        self._answer(answer)

    def _handler(self, kind: str) -> Handler:
        handler = self._handlers.get(kind)
        if handler is None:
            raise Rejected("unknown_kind", f"this agent does not know {kind[:64]!r}")
        return handler

    def _carry_out(self, command: Command, handler: Handler, now_ms: int, clock_trusted: bool) -> bool:
        if clock_trusted and lives_too_long(command, now_ms):
            raise Rejected("bad_expiry", "the expiry lies further ahead than a device remembers")
        try:
            if not self._memory.begin(command, now_ms, clock_trusted):
                raise Rejected("memory_full", "this device remembers too many commands that have not expired")
        except SpoolFullError as error:
            log.warning("event=command_waits command=%s reason=%r", command.command_id, str(error))
            return False
        try:
            done = handler(command) or Done()
        except Rejected as error:
            answer = _said(command, now_ms, Outcome.REFUSED, error.reason, {"text": error.detail[:200]})
            self._end(answer, {})
            return False
        self._end(_said(command, now_ms, Outcome.DONE, "", done.detail), done.keep)
        return True

    def _end(self, answer: Answer, keep: dict[str, Any]) -> None:
        try:
            self._memory.end(answer, keep)
        except SpoolFullError as error:
            log.warning("event=answer_not_remembered command=%s reason=%r", answer.command_id, str(error))
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        self.unsent.append(answer)


def _is_remembered(command: Command) -> bool:
    kind = MENU.get(command.kind)
    return kind is None or kind.remembered


def _said(command: Command, now_ms: int, outcome: Outcome, reason: str, detail: dict[str, Any] | None = None) -> Answer:
    return Answer(command.command_id, command.device, command.nonce, outcome, reason, now_ms, detail or {})
