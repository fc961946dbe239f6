"""Raw records to Parquet files: by tenant and day of receipt, temporary file, fsync, rename.

A file's name says which offsets it may hold, so a file that a crash left outside the manifest is recognised.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from contracts.errors import Rejected
from contracts.stamp import STAMP, Stamp, decode_dead_letter, decode_stamp
from stream_jobs.sinks.manifest import ArchivedFile

_TYPES: dict[str, pa.DataType] = {
    "topic_id": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "received_ms": pa.int64(),
    "device_key": pa.int32(),
    "tenant_id": pa.int32(),
    "key": pa.binary(),
    "stamp": pa.binary(),
    "bytes": pa.binary(),
}
COLUMNS = pa.schema(_TYPES)
PRIVATE_MODE = 0o600
UNSTAMPED = Stamp(0, 0, 0)
"""Records without a readable stamp are kept under tenant 0, day 1970-01-01."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record as Kafka holds it; ``value`` None is a tombstone."""

    offset: int
    key: bytes | None
    stamp: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.stamp or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Place:
    """The Kafka partition that a file's records lie in."""

    topic: str
    topic_id: UUID
    partition: int

    @property
    def file_prefix(self) -> str:
        return f"{self.topic}-{self.topic_id.hex[:12]}-{self.partition}-"


def write_files(
    folder: Path, place: Place, records: Sequence[RawRecord], *, private: bool = False
) -> list[ArchivedFile]:
    """Write one file per tenant and day; all are durable when this returns. ``private``: only its owner reads them."""
    groups: dict[tuple[int, date], list[tuple[RawRecord, Stamp]]] = {}
    for record in records:
        stamp = _stamp(record)
        day = datetime.fromtimestamp(stamp.received_ms / 1000, UTC).date()
        groups.setdefault((stamp.tenant_id, day), []).append((record, stamp))
    mode = PRIVATE_MODE if private else None
    return [_write(folder, place, tenant, day, rows, mode) for (tenant, day), rows in sorted(groups.items())]


def remove_strays(folder: Path, place: Place, next_offset: int) -> int:
    """Remove unfinished files and those whose offsets are not archived yet; how many."""
    strays = [
        path
        for path in folder.glob(f"tenant=*/day=*/*{place.file_prefix}*.parquet*")
        if path.name.startswith(".") or int(path.stem.removeprefix(place.file_prefix).split("-")[0]) >= next_offset
    ]
    for path in strays:
        path.unlink()
    return len(strays)


def _stamp(record: RawRecord) -> Stamp:
    """When a record came and whose it is; a dead letter tells it in its own header, without a device key."""
    header = record.stamp or b""
    try:
        stamp = decode_stamp(header) if len(header) == STAMP.size else _letter(header)
        datetime.fromtimestamp(stamp.received_ms / 1000, UTC)
    except (Rejected, ValueError, OverflowError, OSError):
        return UNSTAMPED
    return stamp


def _letter(header: bytes) -> Stamp:
    letter = decode_dead_letter(header)
    if not all(isinstance(one, int) for one in (letter.received_ms, letter.tenant_id)):
        raise Rejected("bad_dead_letter", "a number is none")
    return Stamp(letter.received_ms, 0, max(0, min(letter.tenant_id, 2**31 - 1)))


def _write(
    folder: Path, place: Place, tenant_id: int, day: date, rows: Sequence[tuple[RawRecord, Stamp]], mode: int | None
) -> ArchivedFile:
    first, last = rows[0][0].offset, rows[-1][0].offset
    path = Path(f"tenant={tenant_id}") / f"day={day}" / f"{place.file_prefix}{first}-{last}.parquet"
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}")
    if mode is not None:
        draft.touch(mode)
        draft.chmod(mode)
    pq.write_table(_table(place, rows), draft, compression="zstd", write_page_checksum=True)
    _sync(draft)
    digest = hashlib.sha256(draft.read_bytes()).digest()
    size_bytes = draft.stat().st_size
    draft.replace(target)
    _sync(target.parent)
    return ArchivedFile(str(path), first, last, tenant_id, day, len(rows), size_bytes, digest)


def _table(place: Place, rows: Sequence[tuple[RawRecord, Stamp]]) -> pa.Table:
    size = len(rows)
    columns: list[list[object]] = [
        [str(place.topic_id)] * size,
        [place.topic] * size,
        [place.partition] * size,
        [record.offset for record, _ in rows],
        [stamp.received_ms for _, stamp in rows],
        [stamp.device_key for _, stamp in rows],
        [stamp.tenant_id for _, stamp in rows],
        [record.key for record, _ in rows],
        [record.stamp for record, _ in rows],
        [record.value for record, _ in rows],
    ]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)], schema=COLUMNS
    )


def _sync(path: Path) -> None:
    """fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
