"""The ingest transaction: offsets, ledger, packets, latest values and windows of one batch, all or nothing.

Decoding happens before it and is not repeated when the database asks for a retry. Inside: lock the ledger rows,
leave out what lies below ``next_offset``, lock the devices' epochs, find what is new, write, advance, commit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stream_jobs.accounts import clean, read_accounts, read_dead_letters
from stream_jobs.arithmetic import Bools, Ints
from stream_jobs.decode import decode
from stream_jobs.heart import (
    Epochs,
    Identity,
    find_epochs,
    keep_packets,
    repeats,
    seen_change,
    strangers,
)
from stream_jobs.merge import aggregate, good_counts, newest, order_samples
from stream_jobs.records import DISBELIEF, Decoded, Kind, Packets, Records, Refusal, Samples, Source
from stream_jobs.scales import Scales
from stream_jobs.sinks import statements as sql
from stream_jobs.sinks import writers
from stream_jobs.sinks.base import Receipt
from stream_jobs.sinks.connection import Connection
from stream_jobs.sinks.pgbinary import int4s, int8s, texts
from stream_jobs.sinks.writers import Cursor


@dataclass(slots=True)
class _Tally:
    """Counts of one partition, for its receipt and its ledger row."""

    source: Source
    next_offset: int
    max_received_ms: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count


class Batch:
    """Decoded records of one transaction; ``commit`` may be called again after a failure."""

    def __init__(self, parts: Sequence[Records], scales: Scales) -> None:
        self._scales = scales
        self._parts = parts
        self._decoded = {id(part): decode(part, scales) for part in parts if part.sources[0].kind is Kind.PACKETS}
        self._tallies: list[_Tally] = []

    def commit(self, connection: Connection) -> list[Receipt]:
        """One transaction. Raises what psycopg raises; nothing is stored then."""
        began_s = time.monotonic()
        sources = sorted(
            (source for part in self._parts for source in part.sources), key=lambda one: (one.topic_id, one.partition)
        )
        with connection.transaction(), connection.cursor(binary=True) as cursor:
            held = _lock_offsets(cursor, sources)
            self._tallies = []
            for part in self._parts:
                fresh = part.offset >= np.array([held[source] for source in part.sources])[part.source]
                self._store(cursor, part, fresh)
            _advance(cursor, self._tallies)
        spent_ms = round((time.monotonic() - began_s) * 1000)
        return [_receipt(tally, spent_ms) for tally in self._tallies]

    def _store(self, cursor: Cursor, part: Records, fresh: Bools) -> None:
        tallies = [_tally(part, index, fresh) for index in range(len(part.sources))]
        self._tallies += tallies
        kind = part.sources[0].kind
        if not fresh.any():
            return
        if kind is Kind.PACKETS:
            _PacketWork(cursor, self._decoded[id(part)], fresh, tallies, self._scales).run()
        elif kind is Kind.STATUS:
            _store_accounts(cursor, part, fresh, tallies)
        else:
            rows, refusals = read_dead_letters(part)
            refusals = [one for one in refusals if fresh[one.row]]
            writers.write_refused(cursor, part, [row for row in rows if fresh[row.row]])
            writers.write_quarantine(cursor, part, None, refusals)
            _count_refusals(part, refusals, tallies)


class _PacketWork:
    """The packets' part of a transaction."""

    def __init__(
        self, cursor: Cursor, decoded: Decoded, fresh_rows: Bools, tallies: list[_Tally], scales: Scales
    ) -> None:
        self._cursor = cursor
        self._decoded = decoded
        self._scales = scales
        self._tallies = tallies
        self._refusals = [one for one in decoded.refusals if fresh_rows[one.row]]
        self._eligible: Bools = fresh_rows[decoded.packets.row]

    def run(self) -> None:
        packets, records = self._decoded.packets, self._decoded.records
        self._refuse(strangers(self._decoded, _identities(self._cursor, packets, self._eligible)), "wrong_device")
        if self._eligible.any():
            self._merge()
        writers.write_quarantine(self._cursor, records, self._decoded.stamps, self._refusals)
        _count_refusals(records, self._refusals, self._tallies)
        received = self._decoded.stamps.received_ms
        for index, tally in enumerate(self._tallies):
            tally.max_received_ms = int(received[records.source == index].max())

    def _merge(self) -> None:
        """Find what is new among the eligible packets and write it."""
        eligible = self._eligible
        packets = self._decoded.packets.where(eligible)
        epochs = find_epochs(packets)
        conflict = _lock_epochs(self._cursor, epochs)[epochs.of_packet] != packets.nonce
        self._refuse(_spread(conflict, eligible), "identity_conflict")
        known = _seen(self._cursor, packets) & ~conflict
        known |= repeats(packets, ~known & ~conflict)
        fresh = ~known & ~conflict
        believed = good_counts(self._decoded.samples, len(self._decoded.packets))
        change = seen_change(epochs, packets, fresh, known, believed[eligible])
        writers.write_epochs(self._cursor, epochs, change)
        self._count(packets, fresh, known, believed[eligible])
        if fresh.any():
            self._write(_spread(fresh, eligible), believed)

    def _write(self, fresh: Bools, believed: Ints) -> None:
        """Everything that new packets say."""
        decoded, scales, cursor = self._decoded, self._scales, self._cursor
        packets = decoded.packets.where(fresh)
        samples = keep_packets(decoded.samples, fresh)
        self._refusals += _disbelieved(packets, samples)
        samples = samples if not samples.belief.any() else samples.where(samples.belief == 0)
        writers.write_packets(cursor, packets, samples, believed[fresh], decoded.sha256[fresh], scales)
        gaps = decoded.gaps.where(fresh[decoded.gaps.packet])
        if len(gaps.packet):
            writers.write_gaps(cursor, decoded.packets, gaps)
        if not len(samples):
            return
        ordered = order_samples(packets, samples)
        writers.write_latest(cursor, newest(ordered, scales))
        windows = aggregate(ordered, scales)
        if len(windows):
            writers.write_windows(cursor, windows)
        self._tallies[0].add(windows=len(windows), late_windows=len(windows.late))

    def _refuse(self, mask: Bools, reason: str) -> None:
        packets, mask = self._decoded.packets, mask & self._eligible
        counts = np.bincount(self._decoded.samples.packet, minlength=len(packets))
        for at in np.flatnonzero(mask).tolist():
            self._refusals.append(
                Refusal(
                    int(packets.row[at]), reason, {"device": clean(self._decoded.devices[at])}, int(counts[at]),
                    int(packets.boot_epoch[at]), int(packets.seq[at]),
                )
            )  # fmt: skip
        self._eligible = self._eligible & ~mask

    def _count(self, packets: Packets, fresh: Bools, known: Bools, believed: Ints) -> None:
        for index, tally in enumerate(self._tallies):
            mine = packets.source == index
            tally.add(
                packets=int(np.count_nonzero(fresh & mine)),
                samples=int(believed[fresh & mine].sum()),
                duplicates=int(np.count_nonzero(known & mine)),
            )
            if (fresh & mine).any():
                delay = packets.received_ms[fresh & mine] - packets.base_ms[fresh & mine]
                tally.counts["lateness_ms"] = max(0, int(delay.max()))


def _spread(values: Bools, places: Bools) -> Bools:
    """Values of the chosen places in an array of all, false elsewhere."""
    result = np.zeros(len(places), np.bool_)
    result[places] = values
    return result


def _lock_offsets(cursor: Cursor, sources: Sequence[Source]) -> dict[Source, int]:
    ids = texts([str(one.topic_id) for one in sources])
    partitions = int4s(np.array([one.partition for one in sources], np.int64))
    cursor.execute(sql.INSERT_OFFSETS, (ids, partitions, texts([one.topic for one in sources])))
    cursor.execute(sql.LOCK_OFFSETS, (ids, partitions))
    held = {(topic_id, partition): offset for topic_id, partition, offset in cursor.fetchall()}
    return {source: int(held[source.topic_id, source.partition]) for source in sources}


def _advance(cursor: Cursor, tallies: Sequence[_Tally]) -> None:
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


def _identities(cursor: Cursor, packets: Packets, eligible: Bools) -> dict[int, Identity]:
    keys = np.unique(packets.device_key[eligible])
    cursor.execute(sql.IDENTITIES, (int4s(keys),))
    return {int(key): Identity(device, int(tenant_id), tenant) for key, device, tenant_id, tenant in cursor.fetchall()}


def _lock_epochs(cursor: Cursor, epochs: Epochs) -> Ints:
    """Insert what is missing, lock, and return the nonces that the store holds, in key order."""
    keys = (int4s(epochs.device_key), int8s(epochs.boot_epoch))
    cursor.execute(sql.INSERT_EPOCHS, (*keys, int8s(epochs.nonce), int4s(epochs.tenant_id)))
    cursor.execute(sql.LOCK_EPOCHS, keys)
    return np.array([row[2] for row in cursor.fetchall()], np.int64)


def _seen(cursor: Cursor, packets: Packets) -> Bools:
    cursor.execute(sql.SEEN, (int4s(packets.device_key), int8s(packets.boot_epoch), int8s(packets.seq)))
    found = np.zeros(len(packets), np.bool_)
    found[[int(row[0]) for row in cursor.fetchall()]] = True
    return found


def _disbelieved(packets: Packets, samples: Samples) -> list[Refusal]:
    """One refusal per packet with samples from the future or the far past."""
    refusals = []
    for at in np.unique(samples.packet[samples.belief > 0]).tolist():
        mine = samples.belief[samples.packet == at]
        counts = {name: int(np.count_nonzero(mine == code)) for code, name in enumerate(DISBELIEF) if code}
        detail: dict[str, object] = {name: count for name, count in counts.items() if count}
        refusals.append(
            Refusal(
                int(packets.row[at]), "samples", detail, sum(counts.values()), int(packets.boot_epoch[at]),
                int(packets.seq[at]),
            )
        )  # fmt: skip
    return refusals


def _store_accounts(cursor: Cursor, part: Records, fresh: Bools, tallies: list[_Tally]) -> None:
    accounts, stamps, refusals = read_accounts(part)
    accounts = [one for one in accounts if fresh[one.row]]
    keys = np.unique(np.array([one.device_key for one in accounts], np.int64))
    cursor.execute(sql.IDENTITIES, (int4s(keys),))
    known = {int(key): (device, tenant_id) for key, device, tenant_id, _ in cursor.fetchall()}
    strange = [one for one in accounts if known.get(one.device_key) != (one.status.device, one.tenant_id)]
    writers.write_accounts(cursor, [one for one in accounts if one not in strange])
    refusals = [one for one in refusals if fresh[one.row]]
    refusals += [Refusal(one.row, "wrong_device", {"status": True}) for one in strange]
    writers.write_quarantine(cursor, part, stamps, refusals)
    _count_refusals(part, refusals, tallies)


def _tally(part: Records, index: int, fresh: Bools) -> _Tally:
    mine = part.source == index
    tally = _Tally(part.sources[index], int(part.offset[mine].max()) + 1)
    tally.add(records=int(np.count_nonzero(mine)), replayed=int(np.count_nonzero(mine & ~fresh)))
    return tally


def _count_refusals(part: Records, refusals: Sequence[Refusal], tallies: list[_Tally]) -> None:
    for refusal in refusals:
        tallies[int(part.source[refusal.row])].add(quarantined=1)


def _receipt(tally: _Tally, spent_ms: int) -> Receipt:
    source = tally.source
    return Receipt(source.topic, source.partition, tally.next_offset, transaction_ms=spent_ms, **tally.counts)
