"""When detection begins anew. A run is one declared set over one log, from its start, with a checkpoint of its own.

Unlike ingest's, this checkpoint is worth keeping: it holds what the detectors have learnt. It is given up when it is
not the continuation of what is there: another set, watermark or number of shards, topics that were made anew, a store
that never saw the run (lost, restored), a log that no longer reaches back to it. The new run reads the topics from
their start and writes the same findings again, which changes no row.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from contracts.errors import Fatal
from stream_jobs.log import LogState

STATE_LAYOUT = 1
"""Raised when the meaning of a shard's bytes changes."""

_RUN_FILE = "run.json"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Run:
    """One run and its folder; ``resumed``: it goes on where it was."""

    run_id: UUID
    folder: Path
    resumed: bool

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def give_up(self) -> None:
        """The next start begins anew."""
        shutil.rmtree(self.folder, ignore_errors=True)


def run_key(version: str, shards: int, log_state: LogState) -> str:
    """What a run depends on, as 16 hexadecimal digits."""
    topics = sorted((name, str(topic_id)) for name, topic_id in log_state.ids.items())
    told = json.dumps([STATE_LAYOUT, version, shards, topics])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Raises Fatal when another process detects with this folder."""
    home.mkdir(parents=True, exist_ok=True)
    lock = os.open(home / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Fatal(f"{home} is in use by another detect process; stop it or set another detect_folder") from error
    finally:
        os.close(lock)


def open_run(home: Path, key: str, known: Callable[[UUID], bool], log_state: LogState) -> Run:
    """The run to go on with, or a new one; folders of other runs are removed."""
    folder = home / key
    home.mkdir(parents=True, exist_ok=True)
    for other in home.iterdir():
        if other.is_dir() and other != folder:
            log.info("event=run_removed key=%s", other.name)
            shutil.rmtree(other, ignore_errors=True)
    found = _found(folder)
    if found is not None:
        why = _broken(folder, found, known, log_state)
        if why is None:
            return Run(found, folder, True)
        log.warning('event=run_given_up run=%s reason="%s" next="begins at the start of the topics"', found, why)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_id = uuid.uuid4()
    (folder / _RUN_FILE).write_text(json.dumps({"run_id": str(run_id)}), encoding="utf-8")
    return Run(run_id, folder, False)


def _found(folder: Path) -> UUID | None:
    try:
        return UUID(json.loads((folder / _RUN_FILE).read_text(encoding="utf-8"))["run_id"])
    except (OSError, ValueError, KeyError):
        return None


def _broken(folder: Path, run_id: UUID, known: Callable[[UUID], bool], log_state: LogState) -> str | None:
    if not known(run_id):
        return "the store does not know this run: it was lost or is another one"
    for (topic, partition), wanted in committed_offsets(folder / "checkpoint" / "offsets").items():
        extent = log_state.extents.get(topic, {}).get(partition)
        if extent is None or not extent.begin <= wanted <= extent.end:
            return f"{topic} partition {partition} no longer holds offset {wanted}"
    return None


def committed_offsets(folder: Path) -> Mapping[tuple[str, int], int]:
    """What the checkpoint's newest batch read up to; nothing when there was none, or it cannot be read."""
    batches = sorted((int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit()), reverse=True)
    for number in batches[:1]:
        lines = (folder / str(number)).read_text(encoding="utf-8").splitlines()
        offsets = json.loads(lines[-1])
        return {(topic, int(part)): int(at) for topic, parts in offsets.items() for part, at in parts.items()}
    return {}
