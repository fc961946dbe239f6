"""The ingest transaction: offsets, ledger, packets, latest values and windows of one batch, all or nothing.

Decoding happens before it and is not repeated when the database asks for a retry. Inside: lock the ledger rows,
leave out what lies below ``next_offset``, store each kind of record, advance, commit. What packets become is in
``packets.py``; what happens to a record that the store refuses, in ``refusals.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from stream_jobs.accounts import read_accounts, read_dead_letters
from stream_jobs.arithmetic import Bools, Ints
from stream_jobs.decode import decode, read_stamps
from stream_jobs.records import Kind, Records, Refusal, Source
from stream_jobs.scales import Scales
from stream_jobs.sinks import statements as sql
from stream_jobs.sinks import writers
from stream_jobs.sinks.base import Receipt
from stream_jobs.sinks.connection import Connection
from stream_jobs.sinks.packets import PacketWork
from stream_jobs.sinks.pgbinary import int4s, int8s, texts
from stream_jobs.sinks.tally import Tally, count_refusals, open_tally
from stream_jobs.sinks.writers import Cursor

Aside = Mapping[int, dict[str, object]]
"""Rows of a batch that are to be quarantined as ``store_refused``, with what the store said."""

NOBODY: Aside = MappingProxyType({})


class Batch:
    """Decoded records of one transaction; ``commit`` may be called again after a failure.

    A *row* counts through all parts. ``waiting`` tells which rows the store has not taken yet, as of the last
    attempt; ``kinds`` and ``owners`` are each row's part and device (0 for dead letters).
    """

    def __init__(self, parts: Sequence[Records], scales: Scales) -> None:
        self._scales = scales
        self._parts = parts
        self._decoded = {id(part): decode(part, scales) for part in parts if part.sources[0].kind is Kind.PACKETS}
        self._first = np.cumsum([0, *(len(part) for part in parts)])
        self.waiting: Bools = np.ones(int(self._first[-1]), np.bool_)

    @property
    def kinds(self) -> Ints:
        return np.repeat(np.arange(len(self._parts)), [len(part) for part in self._parts])

    @property
    def owners(self) -> Ints:
        return np.concatenate([_owners(part) for part in self._parts])

    def place(self, row: int) -> str:
        """Where a row lies in Kafka, for a log line."""
        at = int(np.searchsorted(self._first, row, side="right")) - 1
        part, mine = self._parts[at], row - int(self._first[at])
        source = part.sources[int(part.source[mine])]
        return f"topic={source.topic} partition={source.partition} offset={int(part.offset[mine])}"

    def commit(self, connection: Connection, aside: Aside = NOBODY) -> list[Receipt]:
        """One transaction. Raises what psycopg raises; nothing is stored then."""
        began_s = time.monotonic()
        with connection.transaction():
            tallies = self._run(connection, np.ones(len(self.waiting), np.bool_), aside)
        spent_ms = round((time.monotonic() - began_s) * 1000)
        return [tally.receipt(spent_ms) for tally in tallies]

    def attempt(self, connection: Connection, only: Bools, aside: Aside) -> None:
        """Store the rows in ``only`` and take it back. Raises what psycopg raises."""
        with connection.transaction(force_rollback=True):
            self._run(connection, only, aside)

    def _run(self, connection: Connection, only: Bools, aside: Aside) -> list[Tally]:
        sources = sorted(
            (source for part in self._parts for source in part.sources), key=lambda one: (one.topic_id, one.partition)
        )
        tallies: list[Tally] = []
        with connection.cursor(binary=True) as cursor:
            held = _lock_offsets(cursor, sources)
            for at, part in enumerate(self._parts):
                first, end = int(self._first[at]), int(self._first[at + 1])
                fresh = part.offset >= np.array([held[source] for source in part.sources])[part.source]
                self.waiting[first:end] = fresh
                refused = {row - first: said for row, said in aside.items() if first <= row < end}
                tallies += self._store(cursor, part, fresh & only[first:end], refused)
            _advance(cursor, tallies)
        return tallies

    def _store(self, cursor: Cursor, part: Records, fresh: Bools, refused: Aside) -> list[Tally]:
        tallies = [open_tally(part, index, fresh) for index in range(len(part.sources))]
        kind = part.sources[0].kind
        refusals = [self._refusal(part, row, said) for row, said in refused.items() if fresh[row]]
        fresh = fresh.copy()
        fresh[[one.row for one in refusals]] = False
        if kind is Kind.PACKETS:
            work = PacketWork(cursor, self._decoded[id(part)], fresh, tallies, self._scales)
            work.run(refusals)
        elif kind is Kind.STATUS:
            _store_accounts(cursor, part, fresh, refusals, tallies)
        else:
            rows, unreadable = read_dead_letters(part)
            refusals += [one for one in unreadable if fresh[one.row]]
            writers.write_refused(cursor, part, [row for row in rows if fresh[row.row]])
            writers.write_quarantine(cursor, part, None, refusals)
            count_refusals(part, refusals, tallies)
        return tallies

    def _refusal(self, part: Records, row: int, said: dict[str, object]) -> Refusal:
        """``store_refused``, with the identity that explains the packet's number in the ledger."""
        decoded = self._decoded.get(id(part))
        if decoded is None:
            return Refusal(row, "store_refused", said)
        at = np.flatnonzero(decoded.packets.row == row)
        if not len(at):
            return Refusal(row, "store_refused", said)
        packet = int(at[0])
        return Refusal(
            row, "store_refused", said, int(np.count_nonzero(decoded.samples.packet == packet)),
            int(decoded.packets.boot_epoch[packet]), int(decoded.packets.seq[packet]),
        )  # fmt: skip


def _owners(part: Records) -> Ints:
    if part.sources[0].kind is Kind.DEAD_LETTERS:
        return np.zeros(len(part), np.int64)
    return read_stamps(part.stamp).device_key


def _lock_offsets(cursor: Cursor, sources: Sequence[Source]) -> dict[Source, int]:
    ids = texts([str(one.topic_id) for one in sources])
    partitions = int4s(np.array([one.partition for one in sources], np.int64))
    cursor.execute(sql.INSERT_OFFSETS, (ids, partitions, texts([one.topic for one in sources])))
    cursor.execute(sql.LOCK_OFFSETS, (ids, partitions))
    held = {(topic_id, partition): offset for topic_id, partition, offset in cursor.fetchall()}
    return {source: int(held[source.topic_id, source.partition]) for source in sources}


def _advance(cursor: Cursor, tallies: Sequence[Tally]) -> None:
    def column(values: list[int]) -> Ints:
        return np.array(values, np.int64)

    cursor.execute(
        sql.ADVANCE,
        (
            texts([str(one.source.topic_id) for one in tallies]),
            int4s(column([one.source.partition for one in tallies])),
            int8s(column([one.next_offset for one in tallies])),
            int8s(column([one.max_received_ms for one in tallies])),
            int8s(column([one.counts.get("packets", 0) for one in tallies])),
            int8s(column([one.counts.get("samples", 0) for one in tallies])),
        ),
    )


def _store_accounts(cursor: Cursor, part: Records, fresh: Bools, refusals: list[Refusal], tallies: list[Tally]) -> None:
    accounts, stamps, unreadable = read_accounts(part)
    accounts = [one for one in accounts if fresh[one.row]]
    keys = np.unique(np.array([one.device_key for one in accounts], np.int64))
    cursor.execute(sql.IDENTITIES, (int4s(keys),))
    known = {int(key): (device, tenant_id) for key, device, tenant_id, _ in cursor.fetchall()}
    strange = [one for one in accounts if known.get(one.device_key) != (one.status.device, one.tenant_id)]
    writers.write_accounts(cursor, [one for one in accounts if one not in strange])
    refusals = refusals + [one for one in unreadable if fresh[one.row]]
    refusals += [Refusal(one.row, "wrong_device", {"status": True}) for one in strange]
    writers.write_quarantine(cursor, part, stamps, refusals)
    count_refusals(part, refusals, tallies)
