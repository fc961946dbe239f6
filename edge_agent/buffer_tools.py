"""Looking into a spool from outside: check, export, repair. The agent may be running for the first two."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from contracts.errors import Rejected
from contracts.packet import Packet, PacketError
from contracts.signals import catalogue
from edge_agent.database import SqliteDatabase
from edge_agent.errors import RecordingError
from edge_agent.identity import read_identity
from edge_agent.spool_index import split_id
from edge_agent.spool_model import SCHEMA
from edge_agent.spool_open import SpoolFiles, readable, take_over


@dataclass(frozen=True, slots=True)
class BufferReport:
    """What a spool file holds; ``sound`` is false when a page or a frame is damaged."""

    file: str
    sound: bool
    verdict: str
    packets: int
    samples: int
    frame_bytes: int
    damaged_frames: int
    lanes: dict[str, int]
    epochs: dict[str, dict[str, int]]
    drops_untold: int
    rejected_packets: int


def check_buffer(path: Path) -> BufferReport:
    """Read every page and every frame. Raises RecordingError when there is no such file."""
    with closing(_read_only(path)) as db:
        try:
            return _report(path, db)
        except sqlite3.Error as error:
            return BufferReport(str(path), False, str(error), 0, 0, 0, 0, {}, {}, 0, 0)


def _report(path: Path, db: sqlite3.Connection) -> BufferReport:
    verdict = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
    damaged = packets = samples = size = 0
    lanes: dict[str, int] = {}
    epochs: dict[str, dict[str, int]] = {}
    for identity, lane, count, frame in db.execute("SELECT id, lane, samples, frame FROM packets ORDER BY id"):
        epoch, seq = split_id(identity)
        damaged += _decoded(frame) is None
        packets, samples, size = packets + 1, samples + count, size + len(frame)
        lanes[str(lane)] = lanes.get(str(lane), 0) + 1
        span = epochs.setdefault(str(epoch), {"packets": 0, "first_seq": seq, "last_seq": seq})
        span["packets"] += 1
        span["last_seq"] = seq
    drops = int(db.execute("SELECT count(*) FROM drops").fetchone()[0])
    rejected = int(db.execute("SELECT coalesce(sum(packets), 0) FROM rejected").fetchone()[0])
    sound = verdict == "ok" and damaged == 0
    return BufferReport(str(path), sound, verdict, packets, samples, size, damaged, lanes, epochs, drops, rejected)


def export_buffer(path: Path) -> Iterator[str]:
    """One JSON object per sample, oldest packet first; damaged frames are left out."""
    with closing(_read_only(path)) as db:
        for (frame,) in db.execute("SELECT frame FROM packets ORDER BY id"):
            packet = _decoded(frame)
            if packet is not None:
                yield from _sample_lines(packet)


def repair_buffer(path: Path, repaired: Path) -> int:
    """Write every frame that can still be read into a new file; how many there were. The old file is not touched.

    What could not be read is put down as a gap, so that the agent tells it once the new file is in place.
    """
    if not path.exists() or repaired.exists():
        raise RecordingError("bad_buffer", f"{path} must exist and {repaired} must not")
    db = SqliteDatabase(repaired)
    try:
        for statement in SCHEMA:
            db.execute(statement)
        with db.transaction():
            return take_over(db, read_identity(SpoolFiles(path).identity).epochs, path, now_ms=0)
    finally:
        db.close()


def _read_only(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise RecordingError("bad_buffer", f"{path} does not exist; name the spool file of the settings")
    return sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)


def _decoded(frame: bytes) -> Packet | None:
    try:
        return readable(frame)
    except (PacketError, Rejected, TypeError):
        return None


def _sample_lines(packet: Packet) -> Iterator[str]:
    header = asdict(packet.header)
    identity = {key: header[key] for key in ("device", "boot_epoch", "seq")}
    signals = catalogue()
    for block in packet.blocks:
        signal = signals.by_number(block.signal)
        values = [signal.from_units(block.base + value) for value in block.values]
        yield from _lines(identity, signal.path, packet.header.base_ms, block.offsets_ms, values, block.qualities)
    for double in packet.doubles:
        path = signals.by_number(double.signal).path
        texts = [repr(value) for value in double.values]
        yield from _lines(identity, path, packet.header.base_ms, double.offsets_ms, texts, double.qualities)


def _lines(
    identity: dict[str, object],
    path: str,
    base_ms: int,
    offsets_ms: tuple[int, ...],
    values: list[float] | list[str],
    qualities: tuple[int, ...],
) -> Iterator[str]:
    for at, (offset_ms, value) in enumerate(zip(offsets_ms, values, strict=True)):
        quality = qualities[at] if qualities else 0
        sample = {**identity, "signal": path, "at_ms": base_ms + offset_ms, "value": value, "quality": quality}
        yield json.dumps(sample, separators=(",", ":"))
