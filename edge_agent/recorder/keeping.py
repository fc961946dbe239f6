"""What is kept on the device until the cloud's receipt: capsules, linkages, raw motion. Each is sent until then.

Three files of fixed slots, all written by the rules of ``store`` (payload, sync, header, sync), so a power cut leaves
whole entries or none: the recorder's own, one for linkages, one for raw motion. Raw motion is written last: a cut
between the two costs the raw data, never the capsule that claims them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from contracts.edr.capsule import open_capsule
from contracts.edr.cbor import decode, encode
from contracts.edr.errors import MalformedEvidence
from contracts.edr.raw import RAW_MOTION
from contracts.edr.wire import CapsuleParcel, Kind, Linkage, Message, decode_body, encode_body, event_of, pieces_of
from contracts.errors import FleetstreamError
from edge_agent.recorder.recorder import CrashRecorder, Sealed
from edge_agent.recorder.store import RecordStore, SlotHeader

log = logging.getLogger(__name__)
MAX_WAITING: Final = 64
"""Twice what the three files can hold; beyond it the oldest is no longer repeated (its file keeps it)."""

Entry = TypeVar("Entry")

Key = tuple[str, bytes]
"""Event and the hash that its receipt will name."""


@dataclass(slots=True)
class Waiting:
    """One thing without a receipt. ``messages`` reads it from its file: nothing large stays in memory."""

    messages: Callable[[], list[Message]]
    release: Callable[[], None]
    due_ms: int = 0
    wait_ms: int = 0
    copies: set[int] = field(default_factory=set)
    """Identities of its copies in the spool, as far as they are known to be there."""
    capsule_no: int = 0
    """A capsule's record number; 0 for other things."""
    claimed_by: int = 0
    """Of raw motion: the record number of the capsule that claims it; 0 for other things."""


class Keeping:
    """The files of one recorder and what in them waits for a receipt."""

    def __init__(self, recorder: CrashRecorder, linkages: RecordStore, raws: RecordStore) -> None:
        self.recorder = recorder
        self._linkages, self._raws = linkages, raws
        self.waiting: dict[Key, Waiting] = {}
        for sealed in recorder.undelivered():
            _guarded(self._await_capsule, sealed)
        for header in _undelivered(linkages):
            _guarded(self._await_linkage, header)
        for header in _undelivered(raws):
            _guarded(self._await_raw, header)

    def keep_linkage(self, linkage: Linkage) -> None:
        """Durable on return. Raises OSError."""
        body = encode_body(linkage)[1]
        self._await_linkage(self._linkages.put(body, locked=False, complete=True))

    def keep_capsule(self, sealed: Sealed) -> str:
        """Wait for the receipt of a capsule that the recorder has just kept, then keep its raw motion; the event."""
        event = self._await_capsule(sealed)
        if sealed.supersedes:
            self._forget_record(event, hashlib.sha256(sealed.capsule).digest())
        if sealed.raw:
            self._keep_raw(event, sealed)
        return event

    def receipt(self, key: Key) -> bool:
        """The cloud's database has it: release it; False when nothing here waits for that."""
        waiting = self.waiting.pop(key, None)
        if waiting is not None:
            waiting.release()
        return waiting is not None

    def gone(self, key: Key) -> None:
        """Nothing is left to send of an entry: its record gave way to later ones, and the spool holds no copy of it.

        Raw motion goes with the capsule that claims it: without one, no receipt would ever end its repeating.
        """
        number = self.waiting.pop(key).capsule_no
        orphans = [other for other, one in self.waiting.items() if number and one.claimed_by == number]
        for other in orphans:
            log.warning("event=raw_motion_dropped record_no=%d reason=%s", number, "its capsule was overwritten")
            self.receipt(other)

    def _keep_raw(self, event: str, sealed: Sealed) -> None:
        payload = encode({"event_id": event, "record_no": sealed.record_no, "data": sealed.raw})
        try:
            self._await_raw(self._raws.put(payload, locked=False, complete=True))
        except (OSError, ValueError) as error:
            log.error("event=raw_motion_not_kept reason=%r bytes=%d", str(error), len(payload))

    def _forget_record(self, event: str, whole: bytes) -> None:
        """The incomplete record of the event was replaced: nothing is left to send of it."""
        for key in [key for key, one in self.waiting.items() if key[0] == event and key[1] != whole]:
            if not self.waiting[key].messages():
                del self.waiting[key]

    def _await_capsule(self, sealed: Sealed) -> str:
        opened = open_capsule(sealed.capsule)
        event, record_no = event_of(opened), sealed.record_no

        def from_file() -> list[Message]:
            held = self.recorder.capsule(record_no)
            return [] if held is None else [CapsuleParcel(event, record_no, held)]

        def from_memory() -> list[Message]:
            return [CapsuleParcel(event, record_no, sealed.capsule)]

        messages = from_file if sealed.durable else from_memory
        self._wait(
            (event, opened.sha256), Waiting(messages, lambda: self.recorder.receipt(record_no), capsule_no=record_no)
        )
        return event

    def _await_linkage(self, header: SlotHeader) -> None:
        body = self._linkages.payload(header)
        linkage = decode_body(Kind.LINKAGE, body)
        release = partial(_released, self._linkages, header.record_no)
        self._wait((linkage.event_id, header.sha256), Waiting(lambda: [linkage], release))

    def _await_raw(self, header: SlotHeader) -> None:
        event, record_no, data = _raw_entry(self._raws.payload(header))

        def messages() -> list[Message]:
            if not any(one.record_no == header.record_no for one in self._raws.live()):
                return []
            return list(pieces_of(event, record_no, RAW_MOTION, _raw_entry(self._raws.payload(header))[2]))

        release = partial(_released, self._raws, header.record_no)
        self._wait((event, hashlib.sha256(data).digest()), Waiting(messages, release, claimed_by=record_no))

    def _wait(self, key: Key, entry: Waiting) -> None:
        self.waiting[key] = entry
        while len(self.waiting) > MAX_WAITING:
            self.waiting.pop(next(iter(self.waiting)))


def _guarded(take: Callable[[Entry], object], entry: Entry) -> None:
    """At the start: an entry that cannot be read any more is told and left where it is."""
    try:
        take(entry)
    except FleetstreamError as error:
        log.error("event=kept_entry_unreadable reason=%r", str(error))


def _undelivered(store: RecordStore) -> Iterator[SlotHeader]:
    return (header for header in store.live() if not header.delivered)


def _released(store: RecordStore, record_no: int) -> None:
    store.mark_delivered(record_no)
    store.release(record_no)


def _raw_entry(payload: bytes) -> tuple[str, int, bytes]:
    entry = decode(payload)
    if isinstance(entry, Mapping):
        event, record_no, data = (entry.get(name) for name in ("event_id", "record_no", "data"))
        if isinstance(event, str) and isinstance(record_no, int) and isinstance(data, bytes):
            return event, record_no, data
    raise MalformedEvidence("an entry of raw motion has another form")
