"""Hash-chained logs: each entry carries the hash of the one before it, and every day ends in one root.

Two logs per tenant have this form: ``evidence`` (what was taken in) and ``custody`` (who read what, and on which legal
basis). Whoever changes, removes or moves a row has to rewrite everything after it, and the roots of past days, which
have left the store by then. Pure; the store writes custody entries in SQL with the same bytes (a test compares them).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

EVIDENCE: Final = "evidence"
CUSTODY: Final = "custody"
LEDGERS: Final = (EVIDENCE, CUSTODY)
NOTHING_BEFORE: Final = bytes(32)
"""What the first entry, and the first day, point back to."""

_LEAF, _NODE = b"\x00", b"\x01"
"""As in RFC 6962, so that no inner node can be shown as an entry."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a log as stored; ``at_ms`` is Unix epoch milliseconds, ``fields`` is what the row says."""

    entry_no: int
    at_ms: int
    fields: tuple[str, ...]
    previous_sha256: bytes
    sha256: bytes


@dataclass(frozen=True, slots=True)
class DayRoot:
    """The end of one UTC day of one log: entries ``first_no`` to ``last_no`` under one hash."""

    day: date
    first_no: int
    last_no: int
    previous_sha256: bytes
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Break:
    """One thing that does not hold: which entry or day, and what."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def netstrings(fields: Iterable[str]) -> bytes:
    """Each field with its length in bytes before it, so that no two lists share their bytes."""
    parts = (text.encode() for text in fields)
    return b"".join(b"%d:%s," % (len(part), part) for part in parts)


def entry_hash(
    ledger: str, tenant_id: int, entry_no: int, at_ms: int, previous_sha256: bytes, fields: Sequence[str]
) -> bytes:
    """The hash of an entry, which the next one carries."""
    head = (str(tenant_id), str(entry_no), str(at_ms), previous_sha256.hex())
    return hashlib.sha256(f"fleetstream {ledger} 1\n".encode() + netstrings((*head, *fields))).digest()


def next_entry(ledger: str, tenant_id: int, last: Entry | None, at_ms: int, fields: Sequence[str]) -> Entry:
    """The entry after ``last``; time never runs backwards in a log."""
    number = 1 if last is None else last.entry_no + 1
    at = at_ms if last is None else max(at_ms, last.at_ms)
    before = NOTHING_BEFORE if last is None else last.sha256
    return Entry(number, at, tuple(fields), before, entry_hash(ledger, tenant_id, number, at, before, fields))


def content_digest(kind: str, content: Mapping[str, Any]) -> bytes:
    """One hash over what was stored: integers, text, None, lists and byte strings (as hexadecimal), by sorted keys."""
    text = json.dumps([kind, content], sort_keys=True, separators=(",", ":"), default=_as_text, allow_nan=False)
    return hashlib.sha256(text.encode()).digest()


def _as_text(value: object) -> str:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    raise TypeError(f"{type(value).__name__} has no place in a digest")


def day_of(at_ms: int) -> date:
    """The UTC day of a time in Unix epoch milliseconds."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).date()


def merkle_root(hashes: Sequence[bytes]) -> bytes:
    """The root over entry hashes in order; an odd one goes up as it is."""
    if not hashes:
        raise ValueError("a day without entries has no root")
    level = [hashlib.sha256(_LEAF + one).digest() for one in hashes]
    while len(level) > 1:
        pairs = [hashlib.sha256(_NODE + level[at] + level[at + 1]).digest() for at in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def day_root(ledger: str, tenant_id: int, day: date, entries: Sequence[Entry], previous_sha256: bytes) -> DayRoot:
    """The root of a day from all of its entries and the root before it."""
    first, last = entries[0].entry_no, entries[-1].entry_no
    fields = (str(tenant_id), day.isoformat(), str(first), str(last), previous_sha256.hex())
    merkle = merkle_root([entry.sha256 for entry in entries])
    text = f"fleetstream {ledger} day 1\n".encode() + netstrings((*fields, merkle.hex()))
    return DayRoot(day, first, last, previous_sha256, hashlib.sha256(text).digest())


def chain_breaks(ledger: str, tenant_id: int, entries: Iterable[Entry], head: Entry | None) -> list[Break]:
    """What does not hold in a log read in order; ``head`` is what the store keeps as its last entry (hash and number).

    A log cut at its end together with its head still holds in itself: only the published roots tell.
    """
    breaks: list[Break] = []
    expected_no, before, at_ms = 1, NOTHING_BEFORE, 0
    for entry in entries:
        place = f"{ledger} entry {entry.entry_no}"
        if entry.entry_no != expected_no:
            gone = f"{expected_no} to {entry.entry_no - 1}" if entry.entry_no > expected_no else str(entry.entry_no)
            breaks.append(Break(place, f"entries {gone} are missing or stand elsewhere"))
        if entry.previous_sha256 != before:
            breaks.append(Break(place, "it does not point at the entry before it"))
        if entry.at_ms < at_ms:
            breaks.append(Break(place, "it is older than the entry before it"))
        found = entry_hash(ledger, tenant_id, entry.entry_no, entry.at_ms, entry.previous_sha256, entry.fields)
        if found != entry.sha256:
            breaks.append(Break(place, "what it says is not what was hashed"))
        expected_no, before, at_ms = entry.entry_no + 1, entry.sha256, entry.at_ms
    last_no, last_sha256 = (head.entry_no, head.sha256) if head else (0, NOTHING_BEFORE)
    if (expected_no - 1, before) != (last_no, last_sha256):
        breaks.append(Break(f"{ledger} log", f"it ends at entry {expected_no - 1}, its head says {last_no}"))
    return breaks


def root_breaks(ledger: str, tenant_id: int, entries: Sequence[Entry], roots: Sequence[DayRoot]) -> list[Break]:
    """What does not hold in the daily roots: every day with entries before the newest root has exactly one."""
    by_day: dict[date, list[Entry]] = {}
    for entry in entries:
        by_day.setdefault(day_of(entry.at_ms), []).append(entry)
    breaks: list[Break] = []
    before = NOTHING_BEFORE
    for root in roots:
        place = f"{ledger} root of {root.day.isoformat()}"
        mine = by_day.pop(root.day, [])
        if root.previous_sha256 != before:
            breaks.append(Break(place, "it does not point at the root before it"))
        if not mine:
            breaks.append(Break(place, "the day's entries are gone"))
        elif day_root(ledger, tenant_id, root.day, mine, root.previous_sha256) != root:
            breaks.append(Break(place, "the day's entries are not those that it was made from"))
        before = root.sha256
    newest = max((root.day for root in roots), default=None)
    breaks += [
        Break(f"{ledger} root of {day.isoformat()}", "the day has entries and no root")
        for day in sorted(by_day)
        if newest is not None and day < newest
    ]
    return breaks
