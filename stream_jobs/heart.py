"""What is new in a batch, pure: identities against the ledger, repeats inside the batch, gaps between numbers.

The rule that makes a replay equal: of the copies of a packet the lowest offset wins, whatever the batch size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stream_jobs.arithmetic import Bools, Ints
from stream_jobs.records import Decoded, Packets, Samples


@dataclass(frozen=True, slots=True)
class Epochs:
    """The distinct (device, boot epoch) pairs of a batch in key order, which is also the order of locks.

    ``of_packet`` is each packet's pair; ``nonce`` and ``tenant_id`` are those of the pair's first record.
    """

    device_key: Ints
    boot_epoch: Ints
    nonce: Ints
    tenant_id: Ints
    of_packet: Ints

    def __len__(self) -> int:
        return len(self.device_key)


@dataclass(frozen=True, slots=True)
class Identity:
    """A registered device as the store knows it."""

    device: str
    tenant_id: int
    tenant: str


@dataclass(frozen=True, slots=True)
class SeenChange:
    """What one batch adds to the ledger of one (device, boot epoch); ranges as a multirange literal."""

    ranges: list[str]
    packets: Ints
    samples: Ints
    duplicates: Ints


def strangers(decoded: Decoded, known: Mapping[int, Identity]) -> Bools:
    """Packets whose own identity is not the one that the gateway's stamp and the store say."""
    packets = decoded.packets
    rows = zip(packets.device_key.tolist(), packets.tenant_id.tolist(), decoded.devices, decoded.tenants, strict=True)
    expected = {key: (one.tenant_id, one.device, one.tenant) for key, one in known.items()}
    return np.array([expected.get(key) != (tenant, name, owner) for key, tenant, name, owner in rows], np.bool_)


def find_epochs(packets: Packets) -> Epochs:
    """Group by (device, boot epoch); records are in the order in which they lie in the log.

    The first record of a partition speaks for it, because offsets are the same on every replay; of two partitions
    the one whose first record was received earlier.
    """
    order = np.lexsort((packets.boot_epoch, packets.device_key))  # stable
    device, epoch = packets.device_key[order], packets.boot_epoch[order]
    fresh = _changes(device, epoch)
    heads = order[_changes(device, epoch, packets.source[order])]
    heads = heads[np.lexsort((packets.received_ms[heads], packets.boot_epoch[heads], packets.device_key[heads]))]
    first = heads[_changes(packets.device_key[heads], packets.boot_epoch[heads])]
    of_packet = np.empty(len(packets), np.int64)
    of_packet[order] = np.cumsum(fresh) - 1
    return Epochs(
        packets.device_key[first], packets.boot_epoch[first], packets.nonce[first], packets.tenant_id[first], of_packet
    )


def repeats(packets: Packets, eligible: Bools) -> Bools:
    """Eligible packets that an earlier eligible record of the batch already carries."""
    candidates = np.flatnonzero(eligible)
    columns = (packets.seq[candidates], packets.boot_epoch[candidates], packets.device_key[candidates])
    order = np.lexsort((candidates, *columns))
    result = np.zeros(len(packets), np.bool_)
    result[candidates[order]] = ~_changes(*(column[order] for column in columns))
    return result


def seen_change(epochs: Epochs, packets: Packets, fresh: Bools, known: Bools, samples: Ints) -> SeenChange:
    """Sum up a batch per epoch: ``fresh`` packets are stored, ``known`` ones are duplicates."""
    size = len(epochs)
    return SeenChange(
        range_literals(epochs.of_packet[fresh], packets.seq[fresh], size),
        np.bincount(epochs.of_packet[fresh], minlength=size).astype(np.int64),
        np.bincount(epochs.of_packet[fresh], samples[fresh], size).astype(np.int64),
        np.bincount(epochs.of_packet[known], minlength=size).astype(np.int64),
    )


def range_literals(group: Ints, seq: Ints, groups: int) -> list[str]:
    """Distinct numbers per group as ``int8multirange`` text, ``{}`` where a group has none."""
    order = np.lexsort((seq, group))
    group, seq = group[order], seq[order]
    starts = np.flatnonzero(_changes(group, seq - np.arange(len(seq))))
    ends = np.append(starts[1:], len(seq)) - 1 if len(starts) else starts
    parts: list[list[str]] = [[] for _ in range(groups)]
    for owner, first, last in zip(group[starts].tolist(), seq[starts].tolist(), (seq[ends] + 1).tolist(), strict=True):
        parts[owner].append(f"[{first},{last})")
    return ["{" + ",".join(ranges) + "}" for ranges in parts]


def keep_packets(samples: Samples, mask: Bools) -> Samples:
    """The samples of the packets in ``mask``, renumbered to those packets."""
    if mask.all():
        return samples
    kept = samples.where(mask[samples.packet])
    renumbered = np.cumsum(mask) - 1
    return replace(kept, packet=renumbered[kept.packet])


def ranks(packets: Packets) -> Ints:
    """Order of packets by (boot epoch, seq), equal ones equal: the tie-break between equal times."""
    order = np.lexsort((packets.seq, packets.boot_epoch))
    steps = _changes(packets.boot_epoch[order], packets.seq[order])
    result = np.empty(len(packets), np.int64)
    result[order] = np.cumsum(steps)
    return result


def _changes(*columns: Ints) -> Bools:
    """Where a sorted table starts a new key; the first row always does."""
    result = np.ones(len(columns[0]), np.bool_)
    if len(result) > 1:
        result[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return result
