"""Packets that were accepted under an epoch that is another run's get numbers of an epoch of our own.

A device that lost its identity, or a restored image, learns so from the gateway. What it still holds of the wrong epoch
was never acknowledged, so it moves: body and times stay, header and checksum are made anew. What was acknowledged
before the gateway knew better is gone from here; the store set it aside with its bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from contracts.identity import IdentityNotice
from contracts.packet import (
    DropReason,
    Gap,
    Header,
    Lane,
    PacketError,
    decode_packet,
    decode_parcel,
    encode_packet,
    encode_parcel,
    is_parcel,
)
from contracts.signals import Retention
from edge_agent.journal import MOVED, AcceptedPacket
from edge_agent.packing import Draft
from edge_agent.spool import Spool
from edge_agent.spool_drops import Dropped, record, runs
from edge_agent.spool_index import id_bounds, split_id
from edge_agent.spool_model import DISOWNED, Stored

MOVES_PER_TURN = 200
"""Packets made anew per transaction, so that the acquisition is not held up."""

ALL_NUMBERS = (0, 1 << 63)


def disown(spool: Spool, notice: IdentityNotice) -> bool:
    """Take note that an epoch of ours is another run's; False when it is none of ours, or known already.

    What it holds moves by ``move_some``. Raises SpoolFullError (nothing changed; the cloud will say it again).
    """
    if spool.nonce_of(notice.boot_epoch) != notice.nonce or notice.boot_epoch in spool.disowned:
        return False
    disowned = spool.disowned | {notice.boot_epoch}

    def note(number: int, last_seq: int) -> int:
        spool.database.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (DISOWNED, json.dumps(sorted(disowned))))
        return _move_drops(spool, notice.boot_epoch, number, last_seq)

    if notice.boot_epoch == spool.epoch.boot_epoch:
        spool.begin_epoch(notice.highest, lambda epoch: note(epoch.boot_epoch, 0))
    else:
        number = spool.epoch.boot_epoch
        with spool.changing() as batch:
            batch.last_seq[number] = note(number, batch.last_seq[number])
    spool.disowned = disowned
    return True


def to_move(spool: Spool) -> list[Stored]:
    """Some of what disowned epochs hold, oldest first; empty when all has moved."""
    found: list[Stored] = []
    for epoch in sorted(spool.disowned):
        first, last = id_bounds(epoch, ALL_NUMBERS)
        sql = "SELECT id, lane, retention, samples, frame FROM packets WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?"
        found += [Stored(*row) for row in spool.database.execute(sql, (first, last, MOVES_PER_TURN - len(found)))]
    return found


def endings(device: str, packets: Sequence[Stored]) -> list[AcceptedPacket]:
    """For the history, before the move: these identities are nobody's from here on."""
    return [
        AcceptedPacket(
            device, *split_id(one.identity), hashlib.sha256(one.frame).hexdigest(), one.samples, MOVED
        )
        for one in packets
    ]  # fmt: skip


def move(spool: Spool, packets: Sequence[Stored]) -> list[Stored]:
    """Give packets of ``to_move`` numbers of the current epoch, all or none."""
    number, nonce = spool.epoch.boot_epoch, spool.epoch.nonce
    with spool.changing(len(packets)) as batch:
        spool.remove(batch, [(*old[:4], len(old.frame)) for old in packets], None)
        for old in packets:
            seq = batch.last_seq[number] + 1
            frame = readdressed(old.frame, number, nonce, seq)
            if frame is None:  # it takes a number all the same, so that its loss can be told
                batch.last_seq[number] = seq
                batch.dropped.append(Dropped(number, seq, DropReason.CORRUPT_SPOOL, old.retention, old.samples))
            else:
                draft = Draft(Retention(old.retention), 0, 0, True, old.samples)
                spool.insert(batch, draft, Lane(old.lane), 0, number, frame)
        if batch.dropped:
            record_all(spool, batch.dropped, number, batch.last_seq[number])
    return batch.stored


def record_all(spool: Spool, dropped: Sequence[Dropped], number: int, last_seq: int) -> None:
    """Write drops down, and that their numbers are used."""
    record(spool.database, runs(dropped))
    spool.database.execute("UPDATE epochs SET last_seq = max(last_seq, ?) WHERE boot_epoch = ?", (last_seq, number))


def readdressed(frame: bytes, boot_epoch: int, nonce: int, seq: int) -> bytes | None:
    """The same body under another identity; None when the frame is damaged."""

    def header(old: Header) -> Header:
        return replace(old, boot_epoch=boot_epoch, nonce=nonce, seq=seq)

    try:
        if is_parcel(frame):
            parcel = decode_parcel(frame)
            return encode_parcel(replace(parcel, header=header(parcel.header)))
        packet = decode_packet(frame)
        return encode_packet(replace(packet, header=header(packet.header)))
    except PacketError:
        return None


def _move_drops(spool: Spool, old: int, new: int, last_seq: int) -> int:
    """Drops not yet told get numbers of the new epoch; its last number. Ranges in doubt counted nobody: they go."""
    rows = spool.database.execute("SELECT reason, retention, packets, samples FROM drops WHERE boot_epoch = ?", (old,))
    spool.database.execute("DELETE FROM drops WHERE boot_epoch = ?", (old,))
    for reason, retention, packets, samples in rows:
        if packets:
            gap = Gap(last_seq + 1, last_seq + packets, reason, retention, packets, samples)
            record(spool.database, [(new, gap)])
            last_seq += packets
    spool.database.execute("UPDATE epochs SET last_seq = max(last_seq, ?) WHERE boot_epoch = ?", (last_seq, new))
    return last_seq
