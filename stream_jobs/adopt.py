"""The archive's manifest made again from its files, when the store that held it is lost.

A file says itself which records it holds; Parquet's page checksums say whether it still does. Only rolls that are
complete are taken: a crash may have left the files of some tenants without those of others, and what such a roll holds
is still in the log.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from stream_jobs.errors import LogLost
from stream_jobs.parquet import Place
from stream_jobs.sinks.manifest import ArchivedFile, KeptFile
from stream_jobs.trim import rolls

_NAME: Final = re.compile(r"tenant=(?P<tenant>\d+)/day=(?P<day>[0-9-]{10})/[^/]+\.parquet")
log = logging.getLogger(__name__)

Offsets = Callable[[KeptFile], frozenset[int]]


@dataclass(frozen=True, slots=True)
class Adopted:
    """The whole rolls of one partition, from its first record to before ``end``."""

    place: Place
    end: int
    files: tuple[KeptFile, ...]


@dataclass(slots=True)
class Survey:
    """Every sound file of a folder; ``damaged`` are those whose bytes no longer match their checksums."""

    folder: Path
    files: dict[Place, list[KeptFile]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def offsets(self, file: KeptFile) -> frozenset[int]:
        """Which records a file holds."""
        table = pq.read_table(self.folder / file.path, columns=["offset"], partitioning=None)
        return frozenset(cast("list[int]", table["offset"].to_pylist()))


def survey(folder: Path) -> Survey:
    """Read every file once. One that cannot be read, or whose pages are not what they were, counts as missing."""
    found = Survey(folder)
    for path in sorted(folder.glob("tenant=*/day=*/*.parquet")):
        name = str(path.relative_to(folder))
        matched = _NAME.fullmatch(name)
        if path.name.startswith(".") or matched is None:
            continue
        try:
            place, file = _read(path, name, date.fromisoformat(matched["day"]))
        except (OSError, pa.ArrowException, ValueError, IndexError, KeyError) as error:
            log.error("event=archive_file_damaged path=%s error=%s", name, type(error).__name__)
            found.damaged.append(name)
            continue
        found.files.setdefault(place, []).append(file)
    return found


def adopt(place: Place, files: Iterable[KeptFile], offsets: Offsets, log_begin: int | None) -> Adopted:
    """Whole rolls from the first record on. Raises LogLost when neither files nor log hold what comes then.

    ``log_begin`` None: the topic is no longer there, so its files are all there is.
    """
    taken: list[KeptFile] = []
    end, known = 0, list(files)
    for roll in rolls(known):
        chosen, held = _without_repeats(roll, offsets)
        if min(held) != end or len(held) != max(held) + 1 - end:
            break
        taken += chosen
        end = max(held) + 1
    newest = max((one.last_offset + 1 for one in known), default=0)
    if end < (newest if log_begin is None else log_begin):
        raise LogLost(
            f"{place.topic} partition {place.partition}: the archive is whole up to offset {end}, "
            + ("its topic is gone" if log_begin is None else f"the log begins at {log_begin}")
            + "; nothing was changed: put the missing files back (a copy of the archive's folder), then restore again"
        )
    return Adopted(place, end, tuple(taken))


def manifest_rows(adopted: Adopted) -> list[ArchivedFile]:
    """What the archiver wrote of these files."""
    return [
        ArchivedFile(
            one.path, one.first_offset, one.last_offset, tenant_of(one.path), one.received_day, one.records,
            one.size_bytes, one.sha256,
        )
        for one in adopted.files
    ]  # fmt: skip


def tenant_of(path: str) -> int:
    """The tenant that a file's folder names."""
    matched = _NAME.fullmatch(path)
    return int(matched["tenant"]) if matched else 0


def _without_repeats(roll: list[KeptFile], offsets: Offsets) -> tuple[list[KeptFile], set[int]]:
    """A roll that was written twice (a crash before the manifest) is taken once."""
    chosen, held = list[KeptFile](), set[int]()
    for one in sorted(roll, key=lambda file: -file.records):
        mine = offsets(one)
        if not mine & held:
            chosen.append(one)
            held |= mine
    return chosen, held


def _read(path: Path, name: str, day: date) -> tuple[Place, KeptFile]:
    table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
    topic, topic_id, number = (table[column][0].as_py() for column in ("topic", "topic_id", "partition"))
    seen = cast("list[int]", table["offset"].to_pylist())
    digest = hashlib.sha256(path.read_bytes()).digest()
    place = Place(topic, UUID(topic_id), number)
    return place, KeptFile(
        name, topic, place.topic_id, number, min(seen), max(seen), day, len(seen), path.stat().st_size, digest, True
    )
