"""One parcel inside of the transaction: believed and written, known already, or refused.

Every capsule, every linkage and every whole and claimed attachment is answered by a receipt, also when it was here
before: the device repeats until it hears one, and a receipt may get lost. What is refused is never answered, so the
device keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from psycopg.types.json import Jsonb

from contracts.commands import Command, encode_command
from contracts.edr.capsule import Capsule
from contracts.edr.contents import (
    ELEMENT_COLUMNS,
    LINKAGE_COLUMNS,
    RECORD_COLUMNS,
    element_contents,
    linkage_content,
    notice_content,
    record_content,
    whole_record,
)
from contracts.edr.events import notice_event, record_event
from contracts.edr.profiles import load_profile
from contracts.edr.verify import EvidenceChecks
from contracts.edr.wire import (
    RECEIPT,
    AttachmentPiece,
    CapsuleParcel,
    Linkage,
    Notice,
    Receipt,
    receipt_arguments,
    receipted_sha256,
)
from contracts.errors import Rejected
from stream_jobs.evidence import statements as sql
from stream_jobs.evidence.chain import Cursor, Log, Outbox, at
from stream_jobs.evidence.intake import Arrival, Place
from stream_jobs.evidence.judge import Beside, Held, examine, place

RECEIPT_EXPIRES_MS: Final = 7 * 24 * 3600 * 1000
"""A device away for longer sends its record again, and hears another receipt."""

STORED, REPEATED = "stored", "repeated"


@dataclass(frozen=True, slots=True)
class Sender:
    """A registered device."""

    device_key: int
    device: str
    tenant_id: int
    tenant: str
    kind: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What the consumer was told: trusted roots (SHA-256), the cryptography, and how much may wait for its capsule."""

    roots: Collection[bytes]
    checks: EvidenceChecks
    pending_bytes: int


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes parcels of one transaction. ``take`` raises Rejected for what is not believed."""

    cursor: Cursor
    log: Log
    outbox: Outbox
    rules: Rules

    def take(self, arrival: Arrival, sender: Sender) -> str:
        """STORED or REPEATED. Raises Rejected."""
        message = arrival.message
        self._owns_event(message.event_id, sender)
        if isinstance(message, Notice):
            return self._notice(arrival, message, sender)
        if isinstance(message, CapsuleParcel):
            return self._capsule(arrival, message, sender)
        if isinstance(message, Linkage):
            return self._linkage(arrival, message, sender)
        return self._piece(arrival, message, sender)

    def _owns_event(self, event_id: str, sender: Sender) -> None:
        """An event's name begins with its recorder's id, and a recorder is one device's."""
        try:
            recorder_id = bytes.fromhex(event_id.split("-")[0])
        except ValueError as error:
            raise Rejected("malformed_evidence", "the event's name does not begin with a recorder's id") from error
        if self._owner("recorder", recorder_id) not in (None, sender.device_key):
            raise Rejected("foreign_recorder", "another device's recorder has this id")

    def _notice(self, arrival: Arrival, notice: Notice, sender: Sender) -> str:
        if self.cursor.execute(sql.HAS_NOTICE, (sender.device_key, notice.event_id)).rowcount:
            return REPEATED
        received_ms = arrival.stamp.received_ms
        content = notice_content(notice)
        entry_no = self.log.add(sender.tenant_id, "notice", notice.event_id, content)
        self.cursor.execute(
            sql.NOTICE,
            (sender.tenant_id, sender.device_key, notice.event_id, Jsonb(content), at(received_ms), entry_no),
        )
        self.outbox.event(
            sender.tenant_id, sender.device, notice_event(sender.tenant, sender.device, notice, received_ms)
        )
        return STORED

    def _capsule(self, arrival: Arrival, parcel: CapsuleParcel, sender: Sender) -> str:
        opened = examine(parcel, sender.kind, arrival.stamp.received_ms, self.rules.roots, self.rules.checks)
        capsule = opened.capsule
        fresh = place(capsule, self._held(capsule), sender.device_key)
        if fresh:
            content = record_content(capsule, parcel.event_id, sender.device_key, opened.root_sha256, opened.trust)
            elements = element_contents(capsule.record, load_profile(capsule.head.profile))
            subject = capsule.sha256.hex()
            entry_no = self.log.add(sender.tenant_id, "record", subject, whole_record(content, elements))
            owner = (sender.device_key, sender.tenant_id)
            self.cursor.execute(sql.OWN, ("recorder", capsule.head.place.recorder_id, *owner))
            self.cursor.execute(sql.OWN, ("key", capsule.head.key_id, *owner))
            values = [Jsonb(content[name]) if name == "event" else content[name] for name in RECORD_COLUMNS]
            received = at(arrival.stamp.received_ms)
            self.cursor.execute(sql.RECORD, (*values, sender.tenant_id, received, *_lies(arrival.place), entry_no))
            self.cursor.execute(sql.CAPSULE, (capsule.sha256, sender.tenant_id, parcel.capsule))
            rows = [(*(row[name] for name in ELEMENT_COLUMNS), capsule.sha256, sender.tenant_id) for row in elements]
            self.cursor.executemany(sql.ELEMENT, rows)
            told = record_event(
                sender.tenant, sender.device, parcel.event_id, capsule.sha256, capsule.record.complete, opened.trust
            )
            self.outbox.event(sender.tenant_id, sender.device, told)
            self._claim_all(capsule, parcel.event_id, sender, arrival)
        self._receipt(Receipt(parcel.event_id, capsule.sha256), sender, arrival)
        return STORED if fresh else REPEATED

    def _held(self, capsule: Capsule) -> Held:
        at_no, recorder_id = capsule.head.place.record_no, capsule.head.place.recorder_id
        rows = self.cursor.execute(sql.BESIDE, (recorder_id, at_no - 1, at_no + 1)).fetchall()
        beside = {number: Beside(digest, previous) for number, digest, previous in rows}
        return Held(
            self._owner("recorder", recorder_id), self._owner("key", capsule.head.key_id),
            beside.get(at_no), beside.get(at_no - 1), beside.get(at_no + 1),
        )  # fmt: skip

    def _owner(self, what: str, name: bytes) -> int | None:
        row = self.cursor.execute(sql.OWNER, (what, name)).fetchone()
        return None if row is None else int(row[0])

    def _linkage(self, arrival: Arrival, linkage: Linkage, sender: Sender) -> str:
        digest = receipted_sha256(linkage) or b""
        known = self.cursor.execute(sql.HAS_LINKAGE, (sender.device_key, linkage.event_id, digest)).rowcount
        if not known:
            content = linkage_content(linkage)
            entry_no = self.log.add(sender.tenant_id, "linkage", f"{linkage.event_id} {digest.hex()}", content)
            values = [content[name] for name in LINKAGE_COLUMNS]
            received = at(arrival.stamp.received_ms)
            self.cursor.execute(sql.LINKAGE, (*values, sender.tenant_id, sender.device_key, digest, received, entry_no))
        self._receipt(Receipt(linkage.event_id, digest), sender, arrival)
        return REPEATED if known else STORED

    def _piece(self, arrival: Arrival, piece: AttachmentPiece, sender: Sender) -> str:
        key = (sender.device_key, piece.event_id, piece.sha256)
        whole, taken = (piece.name, piece.size_bytes, piece.pieces), at(self.log.now_ms)
        self.cursor.execute(sql.ATTACHMENT, (*key, sender.tenant_id, *whole, taken))
        row = self.cursor.execute(sql.LOCK_ATTACHMENT, key).fetchone()
        if row is None or row[:3] != whole:
            raise Rejected("piece_conflict", "other pieces of this attachment tell another name or size")
        held_bytes, state, claimed_by = row[3:]
        known = self.cursor.execute(sql.SAME_PIECE, (piece.data, *key, piece.number)).fetchone()
        if known is not None:
            if not known[0]:
                raise Rejected("piece_conflict", f"piece {piece.number} is stored with other bytes")
            if state == "whole" and claimed_by is not None:
                self._receipt(Receipt(piece.event_id, piece.sha256), sender, arrival)
            return REPEATED
        pending = self.cursor.execute(sql.PENDING_BYTES, (sender.device_key,)).fetchone()
        if pending is not None and pending[0] + len(piece.data) > self.rules.pending_bytes:
            raise Rejected("attachment_quota", f"{pending[0]} bytes of this device wait to be whole and claimed")
        self.cursor.execute(sql.PIECE, (*key, piece.number, sender.tenant_id, piece.data))
        self.cursor.execute(sql.GROW, (len(piece.data), taken, *key))
        if held_bytes + len(piece.data) == piece.size_bytes:
            self._finish(arrival, piece, sender)
        return STORED

    def _finish(self, arrival: Arrival, piece: AttachmentPiece, sender: Sender) -> None:
        """All bytes are there: hash them piece by piece, so that memory holds one, and look for the capsule."""
        key = (sender.device_key, piece.event_id, piece.sha256)
        digest = sha256()
        with self.cursor.connection.cursor("pieces") as pieces:
            pieces.itersize = 8
            for (data,) in pieces.execute(sql.PIECES, key):
                digest.update(data)
        if digest.digest() != piece.sha256:
            raise Rejected("broken_attachment", "the pieces do not make the attachment that was named")
        self.cursor.execute(sql.SETTLE, ("whole", *key))
        claim = Jsonb([[piece.name, piece.sha256.hex(), piece.size_bytes]])
        found = self.cursor.execute(sql.CLAIMANT, (sender.device_key, piece.event_id, claim)).fetchone()
        if found is not None:
            self._claim(found[0], (piece.event_id, piece.sha256, piece.name, piece.size_bytes), sender, arrival)

    def _claim_all(self, capsule: Capsule, event_id: str, sender: Sender, arrival: Arrival) -> None:
        """Attachments that were whole before their capsule came."""
        for claim in capsule.record.attachments:
            row = self.cursor.execute(sql.LOCK_ATTACHMENT, (sender.device_key, event_id, claim.sha256)).fetchone()
            told = (claim.name, claim.size_bytes)
            if row is not None and row[:2] == told and row[4] == "whole" and row[5] is None:
                self._claim(capsule.sha256, (event_id, claim.sha256, *told), sender, arrival)

    def _claim(self, record: bytes, attachment: tuple[str, bytes, str, int], sender: Sender, arrival: Arrival) -> None:
        event_id, digest, name, size_bytes = attachment
        content = {"event_id": event_id, "sha256": digest, "name": name, "size_bytes": size_bytes}
        entry_no = self.log.add(sender.tenant_id, "attachment", digest.hex(), content)
        self.cursor.execute(sql.CLAIM, (record, entry_no, sender.device_key, event_id, digest))
        self._receipt(Receipt(event_id, digest), sender, arrival)

    def _receipt(self, receipt: Receipt, sender: Sender, arrival: Arrival) -> None:
        self.outbox.command(
            sender.tenant_id, sender.device, encode_receipt(receipt, sender.device, arrival.place, self.log.now_ms)
        )


def encode_receipt(receipt: Receipt, device: str, lies: Place, now_ms: int) -> bytes:
    """The command that releases the device's copy.

    Its nonce follows from where the parcel lies in the log and from what is receipted: each repeat has its own, and a
    transaction run again says the same.
    """
    seed = json.dumps([str(lies.topic_id), lies.partition, lies.offset, receipt.event_id, receipt.sha256.hex()])
    nonce = int.from_bytes(sha256(seed.encode()).digest()[:8], "big") >> 1
    command = Command(
        f"edr-{nonce:016x}", device, RECEIPT, nonce, now_ms + RECEIPT_EXPIRES_MS, receipt_arguments(receipt)
    )
    return encode_command(command)


def _lies(where: Place) -> tuple[object, int, int]:
    return where.topic_id, where.partition, where.offset
