"""The recorder's file: fixed slots, written so that a power cut at any instant leaves whole records or none.

Sector 0 describes the file and is written once. Sectors 1 and 2 take turns in counting ignition cycles. Then come the
slots: one sector of header, one of marks, then the payload. A record is written payload first, synced, and only then
its header (which carries the payload's hash and the complete flag), synced again: the header is what makes it exist.
A record goes into a free slot and the one that it replaces is freed after it exists, so no instant has neither.

So a whole header whose payload does not fit its hash was not cut off: the medium has lost what it held. Such a record
is *damaged*: it keeps slot, number and hash (the chain goes on from it), is never handed out as sound, and a locked one
is not overwritten.

A header is never rewritten while its slot is in use: "delivered" and "freed" are marks in a sector of their own, so a
torn mark costs at most a second delivery. A freed slot keeps its header, because the newest record's hash is where the
chain goes on.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from contracts.edr.capsule import NO_PREVIOUS
from edge_agent.recorder.blockfile import SECTOR_BYTES, BlockFile
from edge_agent.recorder.errors import RecorderFileUnusable, RecorderFull
from edge_agent.recorder.policy import gives_way

log = logging.getLogger(__name__)
SPARE_SLOTS: Final = 2
"""One to write into before the replaced record is freed, one for the freed header that remembers the chain."""

FORMAT_VERSION: Final = 1
_FILE_MAGIC: Final = b"FSRECORD"
_CYCLE_MAGIC: Final = b"FSCYCLES"
_SLOT_MAGIC: Final = b"FSRSLOT\x01"
_MARK_MAGIC: Final = b"FSRMARK\x01"
_FILE: Final = Struct(">8sHHI16s")
_CYCLES: Final = Struct(">8sQ")
_SLOT: Final = Struct(">8sBQQI32s")
_MARK: Final = Struct(">8sQB")
_HEAD_SECTORS: Final = 8
_SLOT_HEAD_BYTES: Final = 2 * SECTOR_BYTES
_LOCKED, _COMPLETE = 1, 2
_DELIVERED, _FREED = 1, 2


@dataclass(frozen=True, slots=True)
class SlotHeader:
    """One record's header and marks; ``replaces`` is the number of the record that this one put out, or 0.

    ``damaged``: when the file was opened, the payload was not what had been written.
    """

    slot: int
    record_no: int
    replaces: int
    length_bytes: int
    sha256: bytes
    locked: bool
    complete: bool
    delivered: bool = False
    freed: bool = False
    damaged: bool = False


def file_size_bytes(capacity: int, slot_bytes: int) -> int:
    """How large a file for ``capacity`` records is."""
    return _HEAD_SECTORS * SECTOR_BYTES + (capacity + SPARE_SLOTS) * (_SLOT_HEAD_BYTES + slot_bytes)


class RecordStore:
    """Opens (or formats) the file, recovers, and keeps records by the policy. One writer, one thread."""

    def __init__(self, file: BlockFile, capacity: int, slot_bytes: int, new_recorder_id: bytes) -> None:
        self._file = file
        self._capacity = capacity
        self._slot_bytes = slot_bytes
        self._slots = capacity + SPARE_SLOTS
        needed_bytes = file_size_bytes(capacity, slot_bytes)
        if file.size_bytes < needed_bytes:
            raise RecorderFileUnusable(f"file has {file.size_bytes} bytes, needs {needed_bytes}")
        self.recorder_id = self._open(new_recorder_id)
        self._headers: dict[int, SlotHeader] = {header.slot: header for header in self._scan()}
        self._cycles = self._read_cycles()
        self._recover()

    @property
    def ignition_cycles(self) -> int:
        """How often ``count_ignition_cycle`` was called in this file's life, as far as it is durable."""
        return self._cycles

    @property
    def last_record_no(self) -> int:
        """The highest number ever completed here; 0 when there was none."""
        return max((header.record_no for header in self._headers.values()), default=0)

    def live(self) -> tuple[SlotHeader, ...]:
        """The records held, in the order of their numbers."""
        held = (header for header in self._headers.values() if not header.freed)
        return tuple(sorted(held, key=lambda header: header.record_no))

    def hash_of(self, record_no: int) -> bytes:
        """The payload's SHA-256 of a record that is or was here; zeros for number 0. Raises KeyError when forgotten."""
        if record_no == 0:
            return NO_PREVIOUS
        for header in self._headers.values():
            if header.record_no == record_no:
                return header.sha256
        raise KeyError(record_no)

    def payload(self, header: SlotHeader) -> bytes:
        """A record's bytes. Raises RecorderFileUnusable when the medium no longer returns what was written."""
        data = self.as_it_is(header)
        if hashlib.sha256(data).digest() != header.sha256:
            raise RecorderFileUnusable(f"record {header.record_no}: the medium returns other bytes than were written")
        return data

    def as_it_is(self, header: SlotHeader) -> bytes:
        """A record's bytes, whatever the medium made of them."""
        return self._file.read(self._offset(header.slot) + _SLOT_HEAD_BYTES, header.length_bytes)

    def plan(self, supersedes: int = 0) -> tuple[SlotHeader, ...]:
        """The records that will be held beside the next one. Raises RecorderFull."""
        replaced = self._replaced(supersedes)
        return tuple(header for header in self.live() if header is not replaced)

    def put(self, payload: bytes, locked: bool, complete: bool, supersedes: int = 0) -> SlotHeader:
        """Keeps a record under the next number; durable on return. ``supersedes``: the incomplete one of its event.

        Raises RecorderFull when every place is locked, ValueError when the payload does not fit its slot, OSError
        when the medium refuses it (the number is then still to be used, or to be spent).
        """
        if not 0 < len(payload) <= self._slot_bytes:
            raise ValueError(f"{len(payload)} bytes do not fit a slot of {self._slot_bytes}")
        replaced = self._replaced(supersedes)
        header = SlotHeader(
            slot=self._free_slot(),
            record_no=self.last_record_no + 1,
            replaces=replaced.record_no if replaced else 0,
            length_bytes=len(payload),
            sha256=hashlib.sha256(payload).digest(),
            locked=locked,
            complete=complete,
        )
        base = self._offset(header.slot)
        # the old header must be gone for good before its payload is touched, or it would vouch for torn bytes; its mark
        # stays (it names the old record), for a header that outlived its "freed" would bring the record back
        self._file.write(base, bytes(SECTOR_BYTES))
        self._file.sync()
        self._headers.pop(header.slot, None)
        self._file.write(base + _SLOT_HEAD_BYTES, payload)
        self._file.sync()
        self._write_header(header)
        self._file.sync()
        self._headers[header.slot] = header
        if replaced is not None:
            self._free_replaced(replaced)
        return header

    def spend(self, payload: bytes) -> int:
        """Uses up the next number for a record that is not kept here but travels from memory. Never raises OSError.

        Only its number and hash are written, in a freed header, so that the chain goes on from it after a restart too.
        A medium that refuses even that leaves them in memory: after a restart the number would come again.
        """
        header = SlotHeader(
            slot=self._free_slot(),
            record_no=self.last_record_no + 1,
            replaces=0,
            length_bytes=len(payload),
            sha256=hashlib.sha256(payload).digest(),
            locked=False,
            complete=False,
            freed=True,
        )
        try:
            # the mark first: a header without it would stand for a payload that is not there
            self._file.write(self._offset(header.slot), bytes(SECTOR_BYTES))
            self._file.sync()
            self._mark(header)
            self._write_header(header)
            self._file.sync()
        except OSError as error:
            log.error("event=record_number_not_kept record_no=%d reason=%r", header.record_no, str(error))
        self._headers[header.slot] = header
        return header.record_no

    def mark_delivered(self, record_no: int) -> None:
        """The cloud has this record durably (its receipt, not the gateway's acknowledgement, says so). Durable."""
        for header in self.live():
            if header.record_no == record_no and not header.delivered:
                self._mark(replace(header, delivered=True))

    def release(self, record_no: int) -> bool:
        """Frees the place of a delivered, unlocked record; False (and nothing done) for any other."""
        for header in self.live():
            if header.record_no == record_no and header.delivered and not header.locked:
                self._mark(replace(header, freed=True))
                return True
        return False

    def count_ignition_cycle(self) -> int:
        """One power cycle more; durable on return."""
        self._cycles += 1
        sector = 1 + self._cycles % 2
        self._file.write(sector * SECTOR_BYTES, _sealed(_CYCLES.pack(_CYCLE_MAGIC, self._cycles)))
        self._file.sync()
        return self._cycles

    def _open(self, new_recorder_id: bytes) -> bytes:
        first = self._file.read(0, SECTOR_BYTES)
        body = _unsealed(first, _FILE.size)
        if body is not None:
            magic, version, slots, slot_bytes, recorder_id = _FILE.unpack(body)
            if (magic, version, slots, slot_bytes) != (_FILE_MAGIC, FORMAT_VERSION, self._slots, self._slot_bytes):
                raise RecorderFileUnusable("file was made with another capacity, slot size or version")
            return bytes(recorder_id)
        if next(self._scan(), None) is not None:
            raise RecorderFileUnusable("first sector is damaged although the file holds records")
        body = _FILE.pack(_FILE_MAGIC, FORMAT_VERSION, self._slots, self._slot_bytes, new_recorder_id)
        self._file.write(0, _sealed(body))
        self._file.sync()
        return new_recorder_id

    def _offset(self, slot: int) -> int:
        return _HEAD_SECTORS * SECTOR_BYTES + slot * (_SLOT_HEAD_BYTES + self._slot_bytes)

    def _scan(self) -> Iterator[SlotHeader]:
        """Every header whose sum holds."""
        for slot in range(self._slots):
            header = self._read_header(slot)
            if header is None:
                continue
            sound = header.freed or hashlib.sha256(self.as_it_is(header)).digest() == header.sha256
            yield header if sound else replace(header, damaged=True)

    def _read_header(self, slot: int) -> SlotHeader | None:
        base = self._offset(slot)
        body = _unsealed(self._file.read(base, SECTOR_BYTES), _SLOT.size)
        if body is None:
            return None
        magic, flags, record_no, replaces, length, sha256 = _SLOT.unpack(body)
        if magic != _SLOT_MAGIC or length > self._slot_bytes:
            return None
        marks = 0
        mark = _unsealed(self._file.read(base + SECTOR_BYTES, SECTOR_BYTES), _MARK.size)
        if mark is not None and _MARK.unpack(mark)[:2] == (_MARK_MAGIC, record_no):
            marks = _MARK.unpack(mark)[2]
        return SlotHeader(
            slot, record_no, replaces, length, sha256,
            bool(flags & _LOCKED), bool(flags & _COMPLETE), bool(marks & _DELIVERED), bool(marks & _FREED),
        )  # fmt: skip

    def _write_header(self, header: SlotHeader) -> None:
        flags = header.locked * _LOCKED + header.complete * _COMPLETE
        body = _SLOT.pack(_SLOT_MAGIC, flags, header.record_no, header.replaces, header.length_bytes, header.sha256)
        self._file.write(self._offset(header.slot), _sealed(body))

    def _mark(self, header: SlotHeader) -> None:
        marks = header.delivered * _DELIVERED + header.freed * _FREED
        body = _sealed(_MARK.pack(_MARK_MAGIC, header.record_no, marks))
        self._file.write(self._offset(header.slot) + SECTOR_BYTES, body)
        self._file.sync()
        self._headers[header.slot] = header

    def _free_replaced(self, replaced: SlotHeader) -> None:
        """The new record exists and names the one that it replaces: a mark that fails is made up for at the start."""
        try:
            self._mark(replace(replaced, freed=True))
        except OSError as error:
            log.error("event=record_mark_not_kept record_no=%d reason=%r", replaced.record_no, str(error))
            self._headers[replaced.slot] = replace(replaced, freed=True)

    def _read_cycles(self) -> int:
        bodies = (_unsealed(self._file.read(sector * SECTOR_BYTES, SECTOR_BYTES), _CYCLES.size) for sector in (1, 2))
        counts = (_CYCLES.unpack(body) for body in bodies if body is not None)
        return max((count for magic, count in counts if magic == _CYCLE_MAGIC), default=0)

    def _recover(self) -> None:
        """Finishes what a power cut interrupted: a record that another one replaced is freed now."""
        replaced = {header.replaces for header in self._headers.values() if header.replaces}
        for header in self.live():
            if header.record_no in replaced:
                self._mark(replace(header, freed=True))

    def _replaced(self, supersedes: int) -> SlotHeader | None:
        held = self.live()
        for header in held:
            if header.record_no == supersedes:
                return header
        try:
            return gives_way(held, self._capacity)
        except LookupError as full:
            raise RecorderFull(self._capacity) from full

    def _free_slot(self) -> int:
        """An unused slot, else the oldest freed one; never the newest record's, which carries the chain."""
        for slot in range(self._slots):
            if slot not in self._headers:
                return slot
        newest = self.last_record_no
        freed = [header for header in self._headers.values() if header.freed and header.record_no != newest]
        return min(freed, key=lambda header: header.record_no).slot


def _sealed(body: bytes) -> bytes:
    """One sector: the body, its CRC-32, zeros."""
    return (body + zlib.crc32(body).to_bytes(4, "big")).ljust(SECTOR_BYTES, b"\0")


def _unsealed(sector: bytes, length: int) -> bytes | None:
    body, crc = sector[:length], sector[length : length + 4]
    return body if zlib.crc32(body).to_bytes(4, "big") == crc else None
