"""The packets' part of the ingest transaction: find what is new under the devices' locks, and write what it says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from contracts.locks import FINALITY_LOCK
from stream_jobs.accounts import clean
from stream_jobs.arithmetic import Bools, Ints
from stream_jobs.heart import Epochs, Identity, find_epochs, keep_packets, repeats, seen_change, strangers
from stream_jobs.merge import aggregate, beyond_final, good_counts, newest, order_samples
from stream_jobs.records import DISBELIEF, TOO_LATE, Decoded, Packets, Refusal, Samples
from stream_jobs.scales import Scales
from stream_jobs.sinks import statements as sql
from stream_jobs.sinks import writers
from stream_jobs.sinks.pgbinary import int4s, int8s
from stream_jobs.sinks.tally import Tally, count_refusals
from stream_jobs.sinks.writers import Cursor


class PacketWork:
    """One part's packets in one transaction. ``fresh_rows``: records that are to be stored."""

    def __init__(
        self, cursor: Cursor, decoded: Decoded, fresh_rows: Bools, tallies: Sequence[Tally], scales: Scales
    ) -> None:
        self._cursor = cursor
        self._decoded = decoded
        self._samples = decoded.samples
        self._scales = scales
        self._tallies = tallies
        self._refusals = [one for one in decoded.refusals if fresh_rows[one.row]]
        self._fresh_rows = fresh_rows
        self._eligible: Bools = fresh_rows[decoded.packets.row]

    def run(self, refusals: Sequence[Refusal]) -> None:
        """Store what is new and quarantine the rest, ``refusals`` included."""
        packets, records = self._decoded.packets, self._decoded.records
        self._refusals += refusals
        if not self._fresh_rows.any() and not self._refusals:
            return
        self._refuse(strangers(self._decoded, _identities(self._cursor, packets, self._eligible)), "wrong_device")
        if self._eligible.any():
            self._samples = beyond_final(packets, self._samples, self._scales, _final_before_ms(self._cursor))
            self._merge()
        writers.write_quarantine(self._cursor, records, self._decoded.stamps, self._refusals)
        count_refusals(records, self._refusals, self._tallies)
        received = self._decoded.stamps.received_ms
        for index, tally in enumerate(self._tallies):
            tally.max_received_ms = int(received[records.source == index].max())

    def _merge(self) -> None:
        """Find what is new among the eligible packets and write it."""
        eligible = self._eligible
        packets = self._decoded.packets.where(eligible)
        epochs = find_epochs(packets)
        conflict = _lock_epochs(self._cursor, epochs)[epochs.of_packet] != packets.nonce
        if conflict.any():
            _keep_owners(self._cursor, epochs, np.unique(epochs.of_packet[conflict]))
        self._refuse(_spread(conflict, eligible), "identity_conflict")
        known = _seen(self._cursor, packets) & ~conflict
        known |= repeats(packets, ~known & ~conflict)
        fresh = ~known & ~conflict
        believed = good_counts(self._samples, len(self._decoded.packets))
        change = seen_change(epochs, packets, fresh, known, believed[eligible])
        writers.write_epochs(self._cursor, epochs, change)
        self._count(packets, fresh, known, believed[eligible])
        if fresh.any():
            self._write(_spread(fresh, eligible), believed)

    def _write(self, fresh: Bools, believed: Ints) -> None:
        """Everything that new packets say."""
        decoded, scales, cursor = self._decoded, self._scales, self._cursor
        packets = decoded.packets.where(fresh)
        samples = keep_packets(self._samples, fresh)
        if samples.belief.any():
            self._set_aside(packets, samples)
            samples = samples.where(samples.belief == 0)
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

    def _set_aside(self, packets: Packets, samples: Samples) -> None:
        """Quarantine packets for samples that are not believed, and report those that came too late."""
        self._refusals += _disbelieved(packets, samples)
        late = samples.where(samples.belief == TOO_LATE)
        if len(late):
            writers.write_too_late(self._cursor, packets, late, self._scales)
            self._tallies[0].add(too_late=len(late))

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


def _identities(cursor: Cursor, packets: Packets, eligible: Bools) -> dict[int, Identity]:
    keys = np.unique(packets.device_key[eligible])
    cursor.execute(sql.IDENTITIES, (int4s(keys),))
    return {int(key): Identity(device, int(tenant_id), tenant) for key, device, tenant_id, tenant in cursor.fetchall()}


def _final_before_ms(cursor: Cursor) -> int:
    """The horizon of finality, held where it is until this transaction ends."""
    cursor.execute(sql.HOLD_FINALITY, (FINALITY_LOCK,))
    row = cursor.execute(sql.FINALITY).fetchone()
    return int(row[0]) if row else 0


def _lock_epochs(cursor: Cursor, epochs: Epochs) -> Ints:
    """Insert what is missing, lock, and return the nonces that the store holds, in key order."""
    keys = (int4s(epochs.device_key), int8s(epochs.boot_epoch))
    cursor.execute(sql.INSERT_EPOCHS, (*keys, int8s(epochs.nonce), int4s(epochs.tenant_id)))
    cursor.execute(sql.LOCK_EPOCHS, keys)
    return np.array([row[2] for row in cursor.fetchall()], np.int64)


def _keep_owners(cursor: Cursor, epochs: Epochs, contested: Ints) -> None:
    """Remember for ever whose these epochs are: a replay that meets the clone first must decide the same."""
    cursor.execute(sql.KEEP_OWNERS, (int4s(epochs.device_key[contested]), int8s(epochs.boot_epoch[contested])))


def _seen(cursor: Cursor, packets: Packets) -> Bools:
    cursor.execute(sql.SEEN, (int4s(packets.device_key), int8s(packets.boot_epoch), int8s(packets.seq)))
    found = np.zeros(len(packets), np.bool_)
    found[[int(row[0]) for row in cursor.fetchall()]] = True
    return found


def _disbelieved(packets: Packets, samples: Samples) -> list[Refusal]:
    """One refusal per packet with samples from the future or too late; the rest of the packet is stored."""
    refusals = []
    for at in np.unique(samples.packet[samples.belief > 0]).tolist():
        mine = samples.belief[samples.packet == at]
        counts = {name: int(np.count_nonzero(mine == code)) for code, name in enumerate(DISBELIEF) if code}
        detail: dict[str, object] = {name: count for name, count in counts.items() if count}
        reason = "too_late" if counts["too_late"] else "samples"
        refusals.append(
            Refusal(
                int(packets.row[at]), reason, detail, sum(counts.values()), int(packets.boot_epoch[at]),
                int(packets.seq[at]),
            )
        )  # fmt: skip
    return refusals
