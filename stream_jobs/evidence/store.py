"""One transaction per batch: offsets, evidence, logs, outbox, sequence numbers; exactly once by offsets.

The row of the partition's offset is locked first, so that two consumers never write at once; records below
``next_offset`` are left out. A record that the store refuses for its values is kept aside, alone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from uuid import UUID

import psycopg
from psycopg.types.multirange import Int8Multirange
from psycopg.types.range import Int8Range

from contracts.edr.contents import ASIDE_COLUMNS
from contracts.edr.events import refused_event
from contracts.errors import Rejected, TryLater
from contracts.packet import Header
from contracts.ranges import normalise
from stream_jobs.evidence import statements as sql
from stream_jobs.evidence.chain import Cursor, Log, Outbox, at
from stream_jobs.evidence.intake import Arrival, Raw, Refusal, refuse, take_in
from stream_jobs.evidence.writer import Rules, Sender, Writer
from stream_jobs.sinks.connection import REPEATABLE, Connection, connect, repeated

UNACCOUNTED = frozenset({"identity_conflict", "wrong_device"})
"""What came from a stranger under a device's name explains none of its sequence numbers."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """What became of a batch: counts by outcome (stored, repeated, refused), reasons of refusals, oldest age."""

    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    reasons: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    next_offset: int = 0


@dataclass(frozen=True, slots=True)
class EvidenceStore:
    """Takes batches of one partition. Every method raises TryLater when the database does not answer."""

    dsn: str
    rules: Rules

    def offsets(self) -> dict[tuple[UUID, int], int]:
        """(topic id, partition) to the next offset wanted."""
        try:
            with connect(self.dsn) as connection:
                rows = connection.execute(sql.OFFSETS).fetchall()
        except psycopg.OperationalError as error:
            raise TryLater(f"the store did not answer ({type(error).__name__}); nothing was lost") from error
        return {(topic_id, partition): offset for topic_id, partition, offset in rows}

    def take(self, topic: str, batch: Sequence[Raw], now_ms: int) -> Outcome:
        """Store records of one partition, in offset order. Raises StoreBusy (TryLater); then nothing was stored."""
        return repeated(self.dsn, lambda connection: _take(connection, topic, batch, now_ms, self.rules))[0]


def _take(connection: Connection, topic: str, batch: Sequence[Raw], now_ms: int, rules: Rules) -> Outcome:
    outcome = Outcome()
    place = batch[0].place
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(sql.INSERT_OFFSET, (place.topic_id, place.partition, topic))
        row = cursor.execute(sql.LOCK_OFFSET, (place.topic_id, place.partition)).fetchone()
        known = 0 if row is None else int(row[0])
        fresh = [raw for raw in batch if raw.place.offset >= known]
        outcome.next_offset = batch[-1].place.offset + 1
        if fresh:
            _Batch(cursor, Log(cursor, now_ms), rules, outcome).run(fresh)
            cursor.execute(sql.ADVANCE, (outcome.next_offset, place.topic_id, place.partition))
    return outcome


@dataclass(slots=True)
class _Batch:
    """The records of one transaction."""

    cursor: Cursor
    log: Log
    rules: Rules
    outcome: Outcome
    senders: dict[int, Sender] = field(default_factory=dict)
    nonces: dict[tuple[int, int], int] = field(default_factory=dict)
    seen: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def run(self, fresh: Sequence[Raw]) -> None:
        taken = [take_in(raw) for raw in fresh]
        self._look_up(taken)
        self.log.lock(sender.tenant_id for sender in self.senders.values())
        writer = Writer(self.cursor, self.log, Outbox(self.cursor), self.rules)
        for one in taken:
            told = one if isinstance(one, Refusal) else self._write(writer, one)
            if isinstance(told, Refusal):
                self._set_aside(told)
            else:
                self.outcome.counts[told] += 1
            header, reason = (one.header, told.reason) if isinstance(told, Refusal) else (one.header, "")
            self._mark_seen(one, header, reason)
        self._store_seen()

    def _look_up(self, taken: Sequence[Arrival | Refusal]) -> None:
        keys = sorted({one.stamp.device_key for one in taken if one.stamp is not None})
        for row in self.cursor.execute(sql.DEVICES, (keys,)).fetchall():
            self.senders[row[0]] = Sender(*row)
        epochs = sorted({(one.stamp.device_key, one.header.boot_epoch) for one in taken if isinstance(one, Arrival)})
        values = ([key for key, _ in epochs], [epoch for _, epoch in epochs])
        for device_key, boot_epoch, nonce in self.cursor.execute(sql.NONCES, values).fetchall():
            self.nonces[device_key, boot_epoch] = nonce

    def _write(self, writer: Writer, arrival: Arrival) -> str | Refusal:
        """In a savepoint of its own, so that what is refused half-way leaves nothing."""
        remembered = self.log.remember()
        try:
            sender = self._sender(arrival)
            with self.cursor.connection.transaction():
                return writer.take(arrival, sender)
        except Rejected as error:
            self.log.forget(remembered)
            return refuse(arrival, error.reason, error.detail)
        except psycopg.Error as error:
            if isinstance(error, REPEATABLE):
                raise
            self.log.forget(remembered)
            return refuse(arrival, "store_refused", f"{type(error).__name__}: {error.diag.message_primary}")

    def _sender(self, arrival: Arrival) -> Sender:
        stamp, header = arrival.stamp, arrival.header
        sender = self.senders.get(stamp.device_key)
        if sender is None or sender.tenant_id != stamp.tenant_id:
            raise Rejected("wrong_device", "the stamp names a device that the store does not know")
        if (header.device, header.tenant) != (sender.device, sender.tenant):
            raise Rejected("wrong_device", "the parcel names another device than the gateway's stamp")
        if self.nonces.get((stamp.device_key, header.boot_epoch), header.nonce) != header.nonce:
            raise Rejected("identity_conflict", "this boot epoch belongs to another nonce: a clone or a restored image")
        return sender

    def _set_aside(self, refusal: Refusal) -> None:
        """The same bytes for the same reason are kept, logged and told of once."""
        self.outcome.counts["refused"] += 1
        self.outcome.reasons[refusal.reason] += 1
        sender = self.senders.get(refusal.stamp.device_key) if refusal.stamp is not None else None
        digest = sha256(refusal.value).digest()
        device_key = None if sender is None else sender.device_key
        log.warning(
            "event=evidence_refused reason=%s device=%s offset=%d",
            refusal.reason, sender.device if sender else "unknown", refusal.place.offset,
        )  # fmt: skip
        if self.cursor.execute(sql.HAS_ASIDE, (device_key, digest, refusal.reason)).rowcount:
            return
        received_ms = refusal.stamp.received_ms if refusal.stamp is not None else None
        entry_no = None
        if sender is not None:
            content = dict(zip(ASIDE_COLUMNS, (digest, refusal.reason, refusal.detail), strict=True))
            entry_no = self.log.add(sender.tenant_id, "aside", f"{refusal.reason} {digest.hex()}", content)
            told = refused_event(
                sender.tenant, sender.device, refusal.reason, refusal.detail, digest, received_ms or self.log.now_ms
            )
            Outbox(self.cursor).event(sender.tenant_id, sender.device, told)
        received: datetime | None = None if received_ms is None else at(received_ms)
        place = refusal.place
        self.cursor.execute(
            sql.ASIDE,
            (
                sender.tenant_id if sender else None, device_key, refusal.reason, refusal.detail, digest, refusal.value,
                received, place.topic_id, place.partition, place.offset, entry_no,
            ),
        )  # fmt: skip

    def _mark_seen(self, one: Arrival | Refusal, header: Header | None, reason: str) -> None:
        if one.stamp is None or header is None or reason in UNACCOUNTED:
            return
        self.seen[one.stamp.device_key, header.boot_epoch].append(header.seq)

    def _store_seen(self) -> None:
        """Parcels use sequence numbers of their device: the delivery ledger counts them as stored."""
        for (device_key, boot_epoch), numbers in sorted(self.seen.items()):
            ranges = multirange(numbers)
            self.cursor.execute(sql.SEEN, (device_key, boot_epoch, self.senders[device_key].tenant_id, ranges))


def multirange(numbers: Sequence[int]) -> Int8Multirange:
    """Sequence numbers as PostgreSQL holds them."""
    return Int8Multirange(Int8Range(first, last, "[]") for first, last in normalise((one, one) for one in numbers))


def lag(offsets: Mapping[tuple[UUID, int], int], ends: Mapping[tuple[UUID, int], int]) -> int:
    """Records that the store has not taken yet."""
    return sum(max(0, end - offsets.get(key, 0)) for key, end in ends.items())
