"""A scratch folder per start: the ledger of offsets is in the store, so a checkpoint is never worth keeping."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts.errors import Fatal

_RUN = "run-"


@contextmanager
def fresh_folder(home: Path) -> Iterator[Path]:
    """A new folder below ``home``; those of earlier starts are removed. Raises Fatal when another process has it."""
    home = home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    lock = os.open(home / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise Fatal(f"{home} is in use by another ingest process; stop it or set another checkpoint_folder") from error
    try:
        for old in home.glob(f"{_RUN}*"):
            shutil.rmtree(old, ignore_errors=True)
        made = home / f"{_RUN}{uuid.uuid4().hex}"
        made.mkdir()
        yield made
        shutil.rmtree(made, ignore_errors=True)
    finally:
        os.close(lock)
