"""Where the stack may write: the runtime directory and the cache of downloads, nowhere else."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700


def default_home() -> Path:
    """``FLEETSTREAM_HOME``, else ``.fleetstream`` under the working directory."""
    return Path(os.environ.get("FLEETSTREAM_HOME") or ".fleetstream").absolute()


def default_cache() -> Path:
    """``FLEETSTREAM_CACHE``, else ``fleetstream`` in the user's cache folder; shared by all stacks of a user."""
    named = os.environ.get("FLEETSTREAM_CACHE")
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "fleetstream"


def write_private(path: Path, data: bytes) -> None:
    """Replace ``path`` atomically; readable by its owner only from the first byte on."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def exclusive(lock_file: Path) -> Iterator[None]:
    """Hold an advisory lock, waiting for whoever has it (two first starts share one download)."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
