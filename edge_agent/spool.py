"""The store that forgets nothing before the cloud has it: accept, hand out, free, and bound.

One table of frames in SQLite (WAL, ``synchronous=FULL``). A packet takes its sequence number and lane and is
encoded inside the commit that accepts it; if the commit fails, no number was used. Only acknowledged and rejected
ranges free packets; a full spool drops the oldest of the lowest class and writes down, in the same transaction,
what fell. Acknowledgements are applied together with the next commit, since a lost delete costs only a resend.

One thread at a time uses a spool. It reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from contracts.acks import Ack
from contracts.packet import DropReason, Gap, Header, Lane, PacketError, open_frame
from contracts.ranges import Range, normalise
from contracts.signals import Retention
from edge_agent import spool_drops, spool_held, spool_model
from edge_agent.database import PAGE_BYTES, WAL_FRAME_BYTES, Database
from edge_agent.errors import SpoolFullError
from edge_agent.identity import RESERVE_STEP, Epoch, IdentityFile
from edge_agent.packing import Draft, encode_draft
from edge_agent.settings import SpoolSettings
from edge_agent.spool_drops import Dropped
from edge_agent.spool_eviction import too_old, victims
from edge_agent.spool_index import ROW_BYTES, SpoolIndex, Tally, id_bounds, packet_id, split_id
from edge_agent.spool_model import Batch, Counters, Stored

CHECKPOINT_COMMITS = 256
"""Commits between checkpoints: at a few pages each the log stays near 4 MB."""
MAX_REJECTED_ROWS = 1_000
MAX_FREES = 2_000
"""Packets freed per transaction: a confirmation of a long backlog must not become one long pause in much memory."""
EXPIRY_CHECK_COMMITS = 32
SPARE_FRACTION = 50
"""A full spool frees one part in this many beyond its need, so that it does not drop on every commit."""

_SET_STATE = "INSERT OR REPLACE INTO state VALUES (?, ?)"


class Spool:
    """Built by ``spool_open.open_spool`` on a file that passed its check."""

    def __init__(self, db: Database, identity: IdentityFile, device: str, tenant: str, settings: SpoolSettings) -> None:
        self._db = db
        self._identity = identity
        self._device, self._tenant = device, tenant
        self._settings = settings
        self.counters = Counters()
        self._pending: dict[tuple[int, bool], tuple[Range, ...]] = {}
        self._commits = 0
        self._written_bytes = 0
        self.may_expire = True
        """Cleared by who knows that the wall clock has jumped lately."""
        self._load()

    def _load(self) -> None:
        self.index = SpoolIndex()
        tallies = self._db.execute(
            "SELECT id >> 10, lane, retention, count(*), sum(length(frame)), sum(samples) FROM packets GROUP BY 1, 2, 3"
        )
        for chunk, lane, retention, packets, size, samples in tallies:
            self.index.load(chunk, lane, retention, Tally(packets, size + packets * ROW_BYTES, samples))
        known = self._db.execute("SELECT boot_epoch, nonce, last_seq FROM epochs")
        self._nonces = {int(epoch): int(nonce) for epoch, nonce, _ in known}
        self._last_seq = {int(epoch): int(last) for epoch, _, last in known}
        for epoch in self._last_seq:
            bounds = (packet_id(epoch, 0), packet_id(epoch + 1, 0))
            top = self._db.execute("SELECT max(id) FROM packets WHERE id >= ? AND id < ?", bounds)[0][0]
            self._last_seq[epoch] = max(self._last_seq[epoch], split_id(top)[1] if top is not None else 0)
        self.epoch: Epoch = self._identity.epochs[max(self._identity.epochs)]
        self.unreported_drops = bool(self._db.execute("SELECT 1 FROM drops LIMIT 1"))
        self.disowned = spool_model.read_disowned(self._db) & self._nonces.keys()
        """Epochs of ours that the cloud knows as another run's; what they hold moves to the current one."""
        state: dict[str, str] = dict(self._db.execute("SELECT key, value FROM state"))
        self.cursor: str | None = state.get("cursor")
        self.not_accepted_samples = int(state.get("not_accepted_samples", 0))
        self.first_epoch = int(state.get("first_epoch", min(self._nonces, default=1)))

    @property
    def next_seq(self) -> int:
        """The current epoch accepted 1 .. next_seq - 1."""
        return self._last_seq[self.epoch.boot_epoch] + 1

    @property
    def written_bytes(self) -> int:
        """Bytes handed to the disk by this run: exact for the log, an upper bound for checkpoints."""
        return self._written_bytes

    @property
    def nearly_full(self) -> bool:
        """Whether a source that can wait should wait."""
        return self.index.total.size_bytes > 0.8 * self._settings.max_bytes

    def accept(
        self, drafts: Sequence[Draft], lane: Lane, now_ms: int, cursor: str | None = None,
        lost_samples: int = 0, may_evict: bool = True,
    ) -> tuple[list[Stored], list[Draft]]:  # fmt: skip
        """Make drafts durable and give them identities: (accepted, those that a full spool has no room for).

        ``now_ms`` is 0 while the clock is not trusted: such packets never expire. ``lost_samples`` were given up before
        and are written down. ``may_evict``: when the disk is full, older packets may fall for these. Raises
        SpoolFullError (nothing was accepted, no number was used, offer the same again) or SpoolCorruptError.
        """
        try:
            batch = self._commit(drafts, lane, now_ms, cursor, lost_samples, evict_bytes=0)
        except SpoolFullError:
            self._checkpoint()
            need = sum(draft.frame_bytes + ROW_BYTES for draft in drafts) if may_evict else 0
            batch = self._commit(drafts, lane, now_ms, cursor, lost_samples, evict_bytes=need)
        return batch.stored, batch.refused

    def _commit(
        self, drafts: Sequence[Draft], lane: Lane, now_ms: int, cursor: str | None,
        lost_samples: int, evict_bytes: int,
    ) -> Batch:  # fmt: skip
        self._reserve(len(drafts) + 1)
        batch = Batch(dict(self._last_seq), self._pending)
        with self._db.transaction():
            self._apply_acks(batch)
            self._expire(batch, now_ms)
            if evict_bytes:
                self._evict(batch, evict_bytes, Retention.PRIORITY - 1, DropReason.DISK_FULL)
            for draft in sorted(drafts, key=lambda draft: -draft.retention):
                self._accept_one(batch, draft, lane, now_ms)
            if batch.dropped:
                spool_drops.record(self._db, spool_drops.runs(batch.dropped))
            if cursor is not None and cursor != self.cursor:
                self._db.execute(_SET_STATE, ("cursor", cursor))
            if lost_samples:
                self._db.execute(_SET_STATE, ("not_accepted_samples", str(self.not_accepted_samples + lost_samples)))
        self._committed(batch, cursor)
        self.not_accepted_samples += lost_samples
        return batch

    def report_drops(self, lane: Lane, now_ms: int, mono_ms: int) -> list[Stored]:
        """Accept one packet of gaps per epoch that lost something; to be called while the link is up."""
        with self.changing(1) as batch:
            for epoch, gaps in spool_drops.take(self._db).items():
                draft = Draft(Retention.PRIORITY, now_ms, mono_ms, True, 0, ())
                self.insert(batch, draft, lane, 0, epoch, self._encode(batch, draft, lane, epoch, gaps))
        self.unreported_drops = False
        return batch.stored

    def acknowledge(self, ack: Ack) -> bool:
        """Remember what Kafka holds; applied with the next commit. False for an ack that is not for this spool."""
        if self._nonces.get(ack.boot_epoch) != ack.nonce:
            self.counters.strange_acks += 1
            return False
        for ranges, is_rejection in ((ack.confirmed, False), (ack.rejected, True)):
            if ranges:
                key = ack.boot_epoch, is_rejection
                self._pending[key] = normalise((*self._pending.get(key, ()), *ranges))
        return True

    @property
    def has_pending_acks(self) -> bool:
        return bool(self._pending)

    def apply_acks(self) -> None:
        """Commit the frees that no accept took along. Raises SpoolFullError (they stay pending)."""
        with self.changing() as batch:
            self._apply_acks(batch)

    def next(self, lane: Lane, after_id: int, limit: int) -> list[Stored]:
        """Up to ``limit`` packets of a lane above ``after_id``, oldest first."""
        found: list[Stored] = []
        for first, last in self.index.chunks_of_lane(lane, after_id):
            if split_id(first)[0] in self.disowned:
                continue
            rows = self._db.execute(
                "SELECT id, lane, retention, samples, frame FROM packets"
                " WHERE id > ? AND id BETWEEN ? AND ? AND lane = ?"
                " ORDER BY id LIMIT ?", (after_id, first, last, int(lane), limit - len(found)),
            )  # fmt: skip
            found += [Stored(*row) for row in rows]
            if len(found) >= limit:
                break
        return found

    def get(self, identity: int) -> Stored | None:
        """One packet again, for a resend; None when it was freed or dropped meanwhile."""
        rows = self._db.execute("SELECT id, lane, retention, samples, frame FROM packets WHERE id = ?", (identity,))
        return Stored(*rows[0]) if rows else None

    @property
    def database(self) -> Database:
        """For the modules beside this one; statements that write belong inside ``changing``."""
        return self._db

    @contextmanager
    def changing(self, packets: int = 0) -> Iterator[Batch]:
        """One transaction with room for ``packets`` new numbers per epoch; memory follows when it is durable."""
        self._reserve(packets)
        batch = Batch(dict(self._last_seq), self._pending)
        with self._db.transaction():
            yield batch
        self._committed(batch, None)

    def begin_epoch(self, at_least: int, note: Callable[[Epoch], int]) -> None:
        """Go on under a new epoch above ``at_least``; ``note`` writes in its transaction and says its last number."""
        try:
            epoch = self._identity.begin(max(at_least, *self._nonces))
        except OSError as error:
            raise SpoolFullError(f"cannot write {self._identity.path.name}: {error}; free disk space") from error
        with self._db.transaction():
            self._db.execute("INSERT INTO epochs VALUES (?,?,0)", (epoch.boot_epoch, epoch.nonce))
            last_seq = note(epoch)
        self.counters.accepted_packets = self.counters.accepted_samples = 0
        self.epoch = epoch
        self._nonces[epoch.boot_epoch], self._last_seq[epoch.boot_epoch] = epoch.nonce, last_seq

    def nonce_of(self, epoch: int) -> int | None:
        """None: this spool does not know the epoch (any more)."""
        return self._nonces.get(epoch)

    def last_given(self, epoch: int) -> int | None:
        """The highest number given out under it; None likewise."""
        return self._last_seq.get(epoch)

    def discard_damaged(self, stored: Stored) -> bool:
        """Drop a packet whose bytes no longer match their checksum (bit rot); False when it is sound."""
        try:
            open_frame(stored.frame)
        except PacketError:
            with self.changing() as batch:
                self.remove(batch, [(*stored[:4], len(stored.frame))], DropReason.CORRUPT_SPOOL)
                spool_drops.record(self._db, spool_drops.runs(batch.dropped))
            return True
        return False

    def all_packets(self) -> Iterable[Stored]:
        """Everything held, chunk by chunk: for the journal after a restart and for the buffer commands."""
        for first, last in self.index.chunks_between(0, 1 << 63):
            last = min(last, (1 << 63) - 1)
            sql = "SELECT id, lane, retention, samples, frame FROM packets WHERE id BETWEEN ? AND ? ORDER BY id"
            yield from (Stored(*row) for row in self._db.execute(sql, (first, last)))

    def held(self, limit: int) -> tuple[tuple[int, int, int], ...] | None:
        """(boot epoch, first, last) of what is held, at most ``limit`` ranges; see ``spool_held``."""
        return spool_held.held(self._db, self.index, limit)

    def oldest_accepted_ms(self) -> int:
        """Wall time at which the oldest held packet was accepted, 0 when none is held or its clock was not trusted."""
        rows = self._db.execute("SELECT accepted_ms FROM packets ORDER BY id LIMIT 1")
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Apply what is pending, move the log into the file."""
        while self._pending:
            self.apply_acks()
        self._checkpoint()
        self._db.close()

    def abandon(self) -> None:
        """Let go of a damaged file without touching it."""
        self._db.close()

    def _reserve(self, packets: int) -> None:
        """Stay below the bound that the identity file promises for every epoch."""
        for number, epoch in self._identity.epochs.items():
            if self._last_seq.get(number, 0) + packets > epoch.reserved_seq:
                try:
                    self._identity.reserve(epoch, self._last_seq.get(number, 0) + packets + RESERVE_STEP)
                except OSError as error:
                    raise SpoolFullError(
                        f"cannot write {self._identity.path.name}: {error}; free disk space"
                    ) from error

    def _accept_one(self, batch: Batch, draft: Draft, lane: Lane, now_ms: int) -> None:
        own_lane = Lane.PRIORITY if draft.retention == Retention.PRIORITY else lane
        frame = self._encode(batch, draft, own_lane, self.epoch.boot_epoch, ())
        if not self._make_room(batch, len(frame) + ROW_BYTES, draft.retention):
            batch.refused.append(draft)
            return
        self.insert(batch, draft, own_lane, now_ms, self.epoch.boot_epoch, frame)

    def _make_room(self, batch: Batch, size_bytes: int, retention: Retention) -> bool:
        """Drop older packets of the same or a lower class if need be; True when the new one may come in."""
        limit = self._settings.max_bytes - size_bytes
        excess = self.index.total.size_bytes + batch.added_bytes - limit
        if excess > 0:
            spare = self._settings.max_bytes // SPARE_FRACTION
            self._evict(batch, excess + spare, min(retention, Retention.PRIORITY - 1), DropReason.SPOOL_BYTES)
        fits = self.index.total.size_bytes + batch.added_bytes <= limit
        return fits or retention == Retention.PRIORITY

    def _encode(self, batch: Batch, draft: Draft, lane: Lane, epoch: int, gaps: tuple[Gap, ...]) -> bytes:
        """The frame under the next number of ``epoch``; the number is taken when it is inserted."""
        header = Header(
            self._tenant, self._device, epoch, self._nonces[epoch], batch.last_seq[epoch] + 1, int(lane),
            draft.base_ms, draft.mono_ms, draft.clock_trusted, draft.samples,
        )  # fmt: skip
        return encode_draft(header, draft, gaps)

    def insert(self, batch: Batch, draft: Draft, lane: Lane, now_ms: int, epoch: int, frame: bytes) -> None:
        seq = batch.last_seq[epoch] + 1
        stored = Stored(packet_id(epoch, seq), int(lane), int(draft.retention), draft.samples, frame)
        self._db.execute(
            "INSERT INTO packets (id, lane, retention, samples, accepted_ms, frame) VALUES (?,?,?,?,?,?)",
            (stored.identity, stored.lane, stored.retention, stored.samples, now_ms, frame),
        )
        batch.last_seq[epoch] = seq
        batch.added_bytes += len(frame) + ROW_BYTES
        batch.stored.append(stored)

    def _apply_acks(self, batch: Batch) -> None:
        batch.pending = {}
        for (epoch, is_rejection), ranges in self._pending.items():
            left: list[Range] = []
            for wanted in ranges:
                freed, rest = self._free(batch, epoch, wanted)
                left += [rest] if rest else []
                batch.rejected += freed if is_rejection else 0
                batch.acked += 0 if is_rejection else freed
                if is_rejection and freed:
                    self._db.execute("INSERT INTO rejected VALUES (?,?,?,?)", (epoch, *wanted, freed))
            if left:
                batch.pending[epoch, is_rejection] = tuple(left)
        if batch.rejected:
            self._db.execute(
                "DELETE FROM rejected WHERE rowid <= (SELECT max(rowid) FROM rejected) - ?", (MAX_REJECTED_ROWS,)
            )

    def _free(self, batch: Batch, epoch: int, wanted: Range) -> tuple[int, Range | None]:
        """Delete the held packets of a range of numbers: how many there were, and what is left for the next commit."""
        freed = 0
        for first, last in self.index.chunks_between(*id_bounds(epoch, wanted)):
            if len(batch.removed) >= MAX_FREES:
                return freed, (split_id(first)[1], wanted[1])
            rows = self._db.execute(
                "SELECT id, lane, retention, samples, length(frame) FROM packets WHERE id BETWEEN ? AND ?",
                (first, last),
            )
            self.remove(batch, rows, None)
            freed += len(rows)
        return freed, None

    def _expire(self, batch: Batch, now_ms: int) -> None:
        """Drop what is older than allowed, oldest chunks first; only stamps of trusted clocks count."""
        if now_ms and self.may_expire and self._commits % EXPIRY_CHECK_COMMITS == 0:
            for rows in too_old(self._db, self.index, now_ms - self._settings.max_age_ms):
                self.remove(batch, rows, DropReason.SPOOL_AGE)

    def _evict(self, batch: Batch, need_bytes: int, highest_class: int, reason: DropReason) -> None:
        """Drop the oldest of the lowest class, then of the next, up to ``highest_class``, until enough is free."""
        fresh = {stored.identity for stored in batch.stored}
        for rows in victims(self._db, self.index, need_bytes, highest_class, fresh):
            self.remove(batch, rows, reason)

    def remove(self, batch: Batch, rows: Sequence[tuple[int, int, int, int, int]], reason: DropReason | None) -> None:
        """Delete rows (id, lane, retention, samples, frame bytes); with a reason they count as dropped."""
        self._db.execute_many("DELETE FROM packets WHERE id = ?", [(row[0],) for row in rows])
        for identity, _, retention, samples, size in rows:
            batch.added_bytes -= size + ROW_BYTES
            epoch, seq = split_id(identity)
            batch.freed_through[epoch] = max(seq, batch.freed_through.get(epoch, 0))
            if reason is not None:
                batch.dropped.append(Dropped(epoch, seq, reason, retention, samples))
        for epoch, seq in batch.freed_through.items():
            self._db.execute("UPDATE epochs SET last_seq = max(last_seq, ?) WHERE boot_epoch = ?", (seq, epoch))
        batch.removed += rows

    def _committed(self, batch: Batch, cursor: str | None) -> None:
        """The transaction is durable: now memory may follow."""
        self._last_seq = batch.last_seq
        self.cursor = cursor if cursor is not None else self.cursor
        for identity, lane, retention, samples, frame in batch.stored:
            self.index.add(identity, lane, retention, len(frame), samples)
        for identity, lane, retention, samples, size in batch.removed:
            self.index.remove(identity, lane, retention, size, samples)
        self._pending = batch.pending
        counters = self.counters
        counters.accepted_packets += len(batch.stored)
        counters.accepted_samples += sum(stored.samples for stored in batch.stored)
        counters.acked_packets += batch.acked
        counters.rejected_packets += batch.rejected
        counters.dropped_packets += len(batch.dropped)
        counters.dropped_samples += sum(entry.samples for entry in batch.dropped)
        self.unreported_drops |= bool(batch.dropped)
        self._commits += 1
        if self._commits % CHECKPOINT_COMMITS == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        pages = self._db.checkpoint()
        in_file = int(self._db.execute("PRAGMA page_count")[0][0])
        self._written_bytes += pages * WAL_FRAME_BYTES + min(pages, in_file) * PAGE_BYTES
