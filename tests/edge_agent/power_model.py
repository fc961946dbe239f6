"""A disk that loses power: SQLite writes through this model, and what was not synced survives only in torn pieces.

Writes lie in a cache until ``xSync``. A cut keeps each 512-byte sector of each unsynced write whole (one half), torn
somewhere inside (one tenth) or not at all, and each unsynced truncation with probability one half. What was synced
stays. A disk can also write down every operation (``log``), so that one run is cut at thousands of instants.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from edge_agent.database import Row
from edge_agent.errors import SpoolCorruptError, SpoolFullError

SECTOR_BYTES = 512
WHOLE, TORN = 0.5, 0.1
Operation = tuple[str, str, int, bytes]
"""("write", file, offset, data), ("truncate", file, size, b""), ("sync", file, 0, b""), ("delete", file, 0, b"")."""


class PowerCutError(Exception):
    """The lights went out in the middle of a call."""


class FileModel:
    """One file: what is on the platter, and what is only in the cache."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.seen = bytearray(durable)
        self.unsynced: list[tuple[int, bytes | None]] = []
        """(offset, bytes written), or (size, None) for a truncation."""

    def write(self, offset: int, data: bytes) -> None:
        _put(self.seen, offset, data)
        self.unsynced.append((offset, data))

    def truncate(self, size: int) -> None:
        del self.seen[size:]
        self.unsynced.append((size, None))

    def sync(self) -> None:
        self.durable[:] = self.seen
        self.unsynced.clear()

    def after_cut(self, dice: random.Random) -> bytes:
        left = bytearray(self.durable)
        for offset, data in self.unsynced:
            if data is None:
                if dice.random() < 0.5:
                    del left[offset:]
                continue
            for start in range(0, len(data), SECTOR_BYTES):
                sector, fate = data[start : start + SECTOR_BYTES], dice.random()
                if fate < WHOLE:
                    _put(left, offset + start, sector)
                elif fate < WHOLE + TORN:
                    _put(left, offset + start, sector[: dice.randrange(len(sector) + 1)])
        return bytes(left)


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(b"\0" * (offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk:
    """All files of one device, and how many writes and syncs remain until the cut (None: no cut)."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.files = {name: FileModel(content) for name, content in (contents or {}).items()}
        self.remaining: int | None = None
        self.is_dead = False
        self.ignores_sync = False
        """The control: a disk (or ``synchronous=OFF``) that does not keep its word loses what was accepted."""
        self.log: list[Operation] | None = None
        self.is_full = False
        """Writes fail as they do on a full file system; what is there stays readable."""

    def file(self, name: str) -> FileModel:
        """The file of this name, made when it is not there."""
        return self.files.setdefault(name, FileModel())

    def do(self, operation: Operation) -> None:
        """Carry one operation out, unless the power is gone."""
        if not self.alive():
            return
        if self.is_full and operation[0] == "write":
            raise apsw.FullError("the modelled disk is full")
        if self.log is not None:
            self.log.append(operation)
        what, name, number, data = operation
        if what == "write":
            self.file(name).write(number, data)
        elif what == "truncate":
            self.file(name).truncate(number)
        elif what == "delete":
            self.files.pop(name, None)
        elif not self.ignores_sync:
            self.file(name).sync()

    def alive(self) -> bool:
        """Count one write or sync; the one that meets the cut raises, later ones (closing) have no effect."""
        if self.remaining is not None and not self.is_dead:
            self.remaining -= 1
            if self.remaining < 0:
                self.is_dead = True
                raise PowerCutError
        return not self.is_dead

    def after_cut(self, dice: random.Random) -> Disk:
        return Disk({name: file.after_cut(dice) for name, file in self.files.items()})


class _OpenFile:
    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._name = disk, name
        self._file = disk.file(name)

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._file.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.do(("write", self._name, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        self._disk.do(("truncate", self._name, size, b""))

    def xSync(self, _flags: int) -> bool:
        self._disk.do(("sync", self._name, 0, b""))
        return True

    def xFileSize(self) -> int:
        return len(self._file.seen)

    def xSectorSize(self) -> int:
        return SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xLock(self, _level: int) -> None:
        """One process, one connection."""

    def xUnlock(self, _level: int) -> None:
        """One process, one connection."""

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, _operation: int, _pointer: int) -> bool:
        return False

    def xClose(self) -> None:
        """The model keeps the file."""


class ModelVfs(apsw.VFS):
    """SQLite's door to one ``Disk``: a new one per life, since a dead connection still tidies up when it is freed."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.name = f"power-{id(disk)}"
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        flags[1] = flags[0]
        return _OpenFile(self.disk, Path(path).name)

    def xAccess(self, pathname: str, _flags: int) -> bool:
        return Path(pathname).name in self.disk.files

    def xDelete(self, filename: str, _syncdir: bool) -> None:
        self.disk.do(("delete", Path(filename).name, 0, b""))

    def xFullPathname(self, name: str) -> str:
        return name


class ModelBlockFile:
    """A recorder's file on the same disk (``edge_agent.recorder.blockfile.BlockFile``)."""

    def __init__(self, disk: Disk, path: Path, size_bytes: int) -> None:
        self._disk, self._name = disk, path.name
        if len(disk.file(self._name).seen) < size_bytes:
            # claimed once, at the first start, long before any crash
            disk.files[self._name] = FileModel(bytes(size_bytes))

    @property
    def size_bytes(self) -> int:
        return len(self._disk.file(self._name).seen)

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self._disk.file(self._name).seen[offset : offset + count])

    def write(self, offset: int, data: bytes) -> None:
        self._disk.do(("write", self._name, offset, bytes(data)))

    def sync(self) -> None:
        self._disk.do(("sync", self._name, 0, b""))


class ModelDatabase:
    """``edge_agent.database.Database`` over apsw; pragmas as in the product."""

    def __init__(self, path: Path, vfs: str) -> None:
        self._connection = apsw.Connection(str(path), vfs=vfs)
        for pragma in (
            "locking_mode=EXCLUSIVE", "page_size=4096", "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"
        ):  # fmt: skip
            self._connection.execute(f"PRAGMA {pragma}").fetchall()

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        with _translated():
            return list(self._connection.execute(sql, parameters))

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        with _translated():
            self._connection.executemany(sql, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with _translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def checkpoint(self) -> int:
        return max(0, int(self.execute("PRAGMA wal_checkpoint(PASSIVE)")[0][1]))

    def close(self) -> None:
        self._connection.close(True)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise SpoolCorruptError(str(error)) from error
    except apsw.FullError as error:
        raise SpoolFullError(str(error)) from error
