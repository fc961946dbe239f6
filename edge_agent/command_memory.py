"""What a device remembers of commands over restarts: one small file beside the spool, written before anything is done.

A command is written down as *begun* before it is carried out and with its answer afterwards, together with what it
changed (the sampling profile). So a power cut in between leaves a command that will never be carried out again and is
answered with ``unknown``. The file outlives a damaged spool. When it is damaged itself, nobody can say what was done:
every command issued before that is answered with ``unknown`` and left alone. It is bounded: an entry is forgotten only
after its command has expired, and a device whose memory is full of others refuses new ones. What was not begun
(expired, refused) is written down with its answer before that is told, since for the cloud it is final.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.command_menu import MAX_LIFE_MS
from contracts.commands import Answer, Command, Outcome
from contracts.limits import MAX_FUTURE_MS
from edge_agent.errors import SpoolFullError
from edge_agent.identity import sync_folder

log = logging.getLogger("edge_agent.commands")
MEMORY_FORMAT = 1
MAX_REMEMBERED = 500
MAX_DECLINED = 100
"""Room beyond that for commands that were not begun: that a full memory refused one must be remembered, too."""

MAX_KEPT_DETAIL = 2_000
"""Characters of an answer's detail that are remembered; a repeat of a longer answer says that it was cut."""

UNDATED = 0
"""In place of the moment of a loss that was found while the clock was not set."""


@dataclass(slots=True)
class Entry:
    """One command; ``answer`` is None from its begin until it ended."""

    command_id: str
    expires_ms: int
    answer: Answer | None = None


@dataclass(slots=True)
class CommandMemory:
    """Entries by nonce, what commands left behind (``kept``), and when all of it was lost (None: never)."""

    path: Path
    entries: dict[int, Entry] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    lost_ms: int | None = None

    def may_have_seen(self, command: Command, now_ms: int, clock_trusted: bool) -> bool:
        """Whether it may have been carried out before a loss: issued before it, as far as two clocks can tell.

        One that does not say when it was issued counts as issued as early as its expiry allows.
        """
        if self.lost_ms is None:
            return False
        if self.lost_ms == UNDATED:
            if not clock_trusted:
                return True
            self.lose(now_ms)
        issued_ms = command.issued_ms or command.expires_ms - MAX_LIFE_MS
        return issued_ms <= self.lost_ms + MAX_FUTURE_MS

    def lose(self, now_ms: int) -> None:
        """Everything before this moment is forgotten. While the disk takes nothing only this process knows it."""
        self.lost_ms = now_ms
        try:
            self._save()
        except SpoolFullError as error:
            log.warning("event=loss_not_written reason=%r", str(error))

    def begin(self, command: Command, now_ms: int, clock_trusted: bool) -> bool:
        """Write down that it begins; False when there is no room. Raises SpoolFullError: do nothing, ask later."""
        return self._add(command, None, MAX_REMEMBERED, now_ms, clock_trusted)

    def decline(self, command: Command, answer: Answer, now_ms: int, clock_trusted: bool) -> bool:
        """Write down how one ended that never began; False when there is no room. Raises SpoolFullError."""
        return self._add(command, answer, MAX_REMEMBERED + MAX_DECLINED, now_ms, clock_trusted)

    def _add(self, command: Command, answer: Answer | None, room: int, now_ms: int, clock_trusted: bool) -> bool:
        if len(self.entries) >= room:
            self._forget_expired(now_ms, clock_trusted)
        if len(self.entries) >= room:
            return False
        self.entries[command.nonce] = Entry(command.command_id, command.expires_ms, answer)
        try:
            self._save()
        except SpoolFullError:
            del self.entries[command.nonce]
            raise
        return True

    def end(self, answer: Answer, keep: dict[str, Any]) -> None:
        """Write down how it ended and what it changed. Raises SpoolFullError: after a restart it counts as unknown."""
        entry = self.entries.get(answer.nonce)
        if entry is not None:
            entry.answer = answer
        self.kept |= keep
        self._save()

    def _forget_expired(self, now_ms: int, clock_trusted: bool) -> None:
        """An expiry means nothing to a clock that was never set."""
        if clock_trusted:
            self.entries = {nonce: entry for nonce, entry in self.entries.items() if entry.expires_ms >= now_ms}

    def _save(self) -> None:
        rows = [[nonce, one.command_id, one.expires_ms, _told(one.answer)] for nonce, one in self.entries.items()]
        body = {"v": MEMORY_FORMAT, "seen": rows, "kept": self.kept, "lost": self.lost_ms}
        beside = self.path.with_suffix(self.path.suffix + ".new")
        try:
            with beside.open("w", encoding="ascii") as file:
                json.dump(body, file, separators=(",", ":"))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise SpoolFullError(f"cannot write {self.path.name}: {error}; free disk space") from error


def read_memory(path: Path, now_ms: int = UNDATED) -> CommandMemory:
    """The file's memory; an absent one is empty. Of an unreadable one a copy stays beside it (``.damaged``), and a
    memory that knows of its loss takes its place at once. ``now_ms``: UNDATED while the clock was not set."""
    try:
        body = json.loads(path.read_text(encoding="ascii"))
        entries = {
            int(nonce): Entry(str(name), min(int(expires_ms), 2**53), _answer(nonce, name, told))
            for nonce, name, expires_ms, told in body["seen"]
        }
        lost_ms = body.get("lost")
        return CommandMemory(path, entries, dict(body["kept"]), None if lost_ms is None else int(lost_ms))
    except FileNotFoundError:
        return CommandMemory(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.error("event=command_memory_unreadable file=%s kept_as=%s reason=%r", path.name, _keep(path), str(error))
        memory = CommandMemory(path)
        memory.lose(now_ms)
        return memory


def _keep(path: Path) -> str:
    """Copied, not renamed: a power cut must never leave the name free, since absent means that nothing was done."""
    aside = path.with_name(f"{path.name}.damaged")
    try:
        aside.write_bytes(path.read_bytes())
    except OSError:
        return "nothing"
    return aside.name


def lives_too_long(command: Command, now_ms: int) -> bool:
    """Whether its expiry lies further ahead than anybody may ask; remembering it could take for ever."""
    return command.expires_ms - now_ms > MAX_LIFE_MS


def _told(answer: Answer | None) -> list[Any] | None:
    if answer is None:
        return None
    detail = answer.detail if len(json.dumps(answer.detail)) <= MAX_KEPT_DETAIL else {"cut": True}
    return [answer.device, answer.outcome.value, answer.reason, answer.at_ms, detail]


def _answer(nonce: int, command_id: str, told: list[Any] | None) -> Answer | None:
    if told is None:
        return None
    device, outcome, reason, at_ms, detail = told
    return Answer(command_id, device, nonce, Outcome(outcome), reason, at_ms, detail)
