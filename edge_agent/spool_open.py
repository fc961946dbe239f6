"""Opening the spool: checked, or set aside and begun anew, so that a damaged file never stops the agent.

A damaged file is renamed, never deleted. Its readable frames are carried over (they name themselves and carry
their own checksum); the rest is told upstream as one gap over every number that its epochs may have used.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from contracts.packet import DropReason, Gap, Header, Packet, PacketError, decode_packet, decode_parcel, is_parcel
from contracts.signals import Retention, catalogue
from edge_agent import spool_drops
from edge_agent.database import Database, SqliteDatabase
from edge_agent.errors import SpoolCorruptError, SpoolFullError
from edge_agent.identity import Epoch, IdentityFile, read_identity
from edge_agent.settings import SpoolSettings
from edge_agent.spool import Spool
from edge_agent.spool_index import packet_id
from edge_agent.spool_model import FIRST_EPOCH, SCHEMA, Stored

log = logging.getLogger("edge_agent.spool")
Connect = Callable[[Path], Database]


@dataclass(frozen=True, slots=True)
class SpoolFiles:
    """The names that belong to one spool."""

    spool: Path

    @property
    def identity(self) -> Path:
        return self.spool.with_suffix(".identity")

    @property
    def commands(self) -> Path:
        """What is remembered of commands (``command_memory``)."""
        return self.spool.with_suffix(".commands")

    @property
    def reserve(self) -> Path:
        """Bytes held back for the day the disk is full."""
        return self.spool.with_suffix(".reserve")

    def set_aside(self, now_ms: int) -> Path:
        """Rename the file and its log; returns the new name. Raises OSError."""
        aside = self.spool.with_name(f"{self.spool.name}.damaged-{now_ms}")
        for suffix in ("-wal", "-shm"):
            part = Path(f"{self.spool}{suffix}")
            if part.exists():
                part.replace(f"{aside}{suffix}")
        if self.spool.exists():
            self.spool.replace(aside)
        return aside


def open_spool(
    settings: SpoolSettings, device: str, tenant: str, now_ms: int,
    connect: Connect = SqliteDatabase, known_damaged: bool = False,
) -> Spool:  # fmt: skip
    """A spool ready to accept under a new boot epoch. Raises SpoolFullError when the disk takes nothing.

    ``known_damaged``: the file failed while in use, set it aside without asking it again.
    """
    files = SpoolFiles(settings.path)
    identity = read_identity(files.identity)
    set_aside = _set_aside(files, now_ms) if known_damaged else None
    db, salvaged = _checked(files, now_ms, connect)
    salvaged = salvaged or set_aside
    try:
        try:
            _begin(db, identity, salvaged, now_ms)
        except SpoolFullError:
            release_reserve(settings)
            _begin(db, identity, salvaged, now_ms)
        spool = Spool(db, identity, device, tenant, settings)
    except BaseException:
        db.close()
        raise
    restore_reserve(settings)
    return spool


def release_reserve(settings: SpoolSettings) -> None:
    """Give the held-back bytes to the file system, so that deletes can be written."""
    SpoolFiles(settings.path).reserve.unlink(missing_ok=True)


def restore_reserve(settings: SpoolSettings) -> bool:
    """Hold bytes back again; False while the disk has none to give."""
    path = SpoolFiles(settings.path).reserve
    if path.exists() and path.stat().st_size >= settings.reserve_bytes:
        return True
    try:
        with path.open("wb") as file:
            for _ in range(settings.reserve_bytes // 65_536):
                file.write(b"\xff" * 65_536)
        return True
    except OSError:
        path.unlink(missing_ok=True)
        return False


def _checked(files: SpoolFiles, now_ms: int, connect: Connect) -> tuple[Database, Path | None]:
    """A sound database with our tables; and the damaged file that it replaces, if any."""
    aside = None
    for _ in range(2):
        try:
            db = connect(files.spool)
            try:
                verdict = str(db.execute("PRAGMA quick_check(1)")[0][0])
                if verdict != "ok":
                    raise SpoolCorruptError(verdict)
                for statement in SCHEMA:
                    db.execute(statement)
                return db, aside
            except BaseException:
                db.close()
                raise
        except SpoolCorruptError as error:
            aside = _set_aside(files, now_ms)
            log.error("event=spool_set_aside file=%s reason=%r", aside.name, str(error))
    raise SpoolFullError("a new spool file is damaged at once; check the disk")


def _set_aside(files: SpoolFiles, now_ms: int) -> Path:
    try:
        return files.set_aside(now_ms)
    except OSError as error:
        raise SpoolFullError(f"cannot set the damaged spool aside: {error}") from error


def _begin(db: Database, identity: IdentityFile, aside: Path | None, now_ms: int) -> None:
    """Open this run's epoch, and take over what a damaged file still says."""
    known = {int(row[0]): int(row[1]) for row in db.execute("SELECT boot_epoch, nonce FROM epochs")}
    before = dict(identity.epochs)
    try:
        epoch = identity.begin(max(known, default=0))
    except OSError as error:
        raise SpoolFullError(f"cannot write {identity.path.name}: {error}; free disk space") from error
    with db.transaction():
        if aside is not None:
            take_over(db, before, aside, now_ms)
        elif before and not known:
            _doubt(db, before, {})  # the file itself is gone, and nobody set it aside
        _prune_epochs(db)
        first = epoch.boot_epoch if not known else min(known)
        db.execute("INSERT OR IGNORE INTO state VALUES (?, ?)", (FIRST_EPOCH, str(first)))
        db.execute("INSERT INTO epochs VALUES (?,?,0)", (epoch.boot_epoch, epoch.nonce))
    kept = {int(row[0]) for row in db.execute("SELECT boot_epoch FROM epochs")}
    try:
        identity.forget_except(kept)
    except OSError as error:  # pruning can wait for a disk with room; the epochs it would forget do no harm
        log.warning("event=identity_not_pruned error=%s", type(error).__name__)


def _prune_epochs(db: Database) -> None:
    """Forget epochs with nothing left to send or to tell."""
    for (epoch,) in db.execute("SELECT boot_epoch FROM epochs"):
        bounds = (packet_id(epoch, 0), packet_id(epoch + 1, 0))
        holds = db.execute("SELECT 1 FROM packets WHERE id >= ? AND id < ? LIMIT 1", bounds)
        tells = db.execute("SELECT 1 FROM drops WHERE boot_epoch = ? LIMIT 1", (epoch,))
        if not holds and not tells:
            db.execute("DELETE FROM epochs WHERE boot_epoch = ?", (epoch,))


def take_over(db: Database, epochs: dict[int, Epoch], aside: Path, now_ms: int) -> int:
    """Salvage frames (their number is returned), then put every number that the lost file may have used in doubt."""
    nonces: dict[int, int] = {}
    saved = 0
    for header, stored in salvage(aside):
        nonces[header.boot_epoch] = header.nonce
        db.execute(
            "INSERT OR IGNORE INTO packets (id, lane, retention, samples, accepted_ms, frame) VALUES (?,?,?,?,?,?)",
            (stored.identity, stored.lane, stored.retention, stored.samples, now_ms, stored.frame),
        )
        saved += 1
    _doubt(db, epochs, nonces)
    log.error("event=spool_salvaged file=%s packets=%d epochs_in_doubt=%d", aside.name, saved, len(epochs))
    return saved


def _doubt(db: Database, epochs: dict[int, Epoch], nonces: dict[int, int]) -> None:
    """Every number that the epochs of a lost file may have used is told as one gap."""
    from_file = {e.boot_epoch: (e.nonce, e.reserved_seq) for e in epochs.values()}
    for number in {*nonces, *from_file}:
        nonce, reserved = from_file.get(number, (nonces.get(number, 0), 0))
        top = db.execute("SELECT max(id) & 1099511627775 FROM packets WHERE id >> 40 = ?", (number,))[0][0] or 0
        last = max(reserved, int(top))
        db.execute("INSERT OR REPLACE INTO epochs VALUES (?,?,?)", (number, nonce, last))
        spool_drops.record(db, [(number, Gap(1, last, DropReason.CORRUPT_SPOOL, Retention.STANDARD, 0, 0))])


def salvage(path: Path) -> Iterator[tuple[Header, Stored]]:
    """Every frame of a damaged file that SQLite can still reach and whose checksum holds, from both ends."""
    seen: set[int] = set()
    for direction in ("ASC", "DESC"):
        for row in _reachable(path, direction):
            entry = _sound(row)
            if entry and entry[1].identity not in seen:
                seen.add(entry[1].identity)
                yield entry


def _reachable(path: Path, direction: str) -> Iterator[tuple[int, bytes]]:
    """(retention, frame) rows until SQLite meets the damage."""
    try:
        connection = sqlite3.connect(path)
        try:
            yield from connection.execute(f"SELECT retention, frame FROM packets ORDER BY id {direction}")
        finally:
            connection.close()
    except sqlite3.Error:
        return


def readable(frame: bytes) -> Packet:
    """What a sound frame holds; a parcel counts as a packet without samples. Raises PacketError."""
    return Packet(decode_parcel(frame).header) if is_parcel(frame) else decode_packet(frame)


def _sound(row: tuple[int, bytes]) -> tuple[Header, Stored] | None:
    retention, frame = row
    try:
        packet = readable(frame)
    except (PacketError, TypeError):
        return None
    header = packet.header
    by_signal = {signal.number: signal.retention for signal in catalogue()}
    signals = [block.signal for block in packet.blocks] + [block.signal for block in packet.doubles]
    classes = [by_signal.get(number, Retention.STANDARD) for number in signals]
    kept = retention if retention in set(Retention) else max(classes, default=Retention.PRIORITY)
    identity = packet_id(header.boot_epoch, header.seq)
    return header, Stored(identity, header.lane, int(kept), header.samples, frame)
