"""A file as the store sees it: fixed size, written at offsets, durable only after ``sync``.

The real one lies on the device's flash; a test puts one in its place that loses and tears what was not synced.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Protocol

SECTOR_BYTES: Final = 512
"""The unit that a drive writes whole or, when the power fails, tears. Headers are one sector each."""


class BlockFile(Protocol):
    """Bytes at offsets; after ``sync`` returns, what was written before it survives a power cut."""

    @property
    def size_bytes(self) -> int: ...
    def read(self, offset: int, count: int) -> bytes: ...
    def write(self, offset: int, data: bytes) -> None: ...
    def sync(self) -> None: ...


class FlashFile:
    """A pre-allocated file on disk. Raises OSError as the system does; the store's caller turns it into words."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(self._descriptor).st_size < size_bytes:
                # space is claimed now, so that a full disk cannot refuse a crash record later
                os.posix_fallocate(self._descriptor, 0, size_bytes)
                os.fsync(self._descriptor)
                _sync_folder(path.parent)
            self._size_bytes = os.fstat(self._descriptor).st_size
        except OSError:
            os.close(self._descriptor)
            raise

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read(self, offset: int, count: int) -> bytes:
        data = os.pread(self._descriptor, count, offset)
        return data + bytes(count - len(data))

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view = view[written:]
            offset += written

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._descriptor)


class MemoryFile:
    """The same in memory, for simulations and tests: nothing survives the process."""

    def __init__(self, size_bytes: int) -> None:
        self.data = bytearray(size_bytes)

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self.data[offset : offset + count])

    def write(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data

    def sync(self) -> None:
        """Memory is as durable as it gets."""


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
