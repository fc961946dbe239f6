"""What a running stack tells others: one JSON file, and a lock that says whether it is true.

The supervisor holds the lock as long as it lives, so a state file without the lock is the past of a dead one.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from infra.errors import AlreadyUp
from infra.paths import write_private


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service as the supervisor sees it. ``state``: waiting, starting, ready, backing_off, stopped."""

    state: str
    pid: int | None = None
    restarts: int = 0
    ready_after_s: float | None = None
    log: str = ""


@dataclass(frozen=True, slots=True)
class StackState:
    """The whole stack; ``started_ms`` is Unix epoch milliseconds."""

    pid: int
    started_ms: int
    ports: dict[str, int]
    services: dict[str, ServiceState] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return bool(self.services) and all(one.state == "ready" for one in self.services.values())


def state_file(home: Path) -> Path:
    return home / "state.json"


def write_state(home: Path, state: StackState) -> None:
    write_private(state_file(home), json.dumps(asdict(state), indent=1).encode())


def read_state(home: Path) -> StackState | None:
    """The state of the supervisor that runs now; None when none does."""
    if not _held(home):
        return None
    try:
        body = json.loads(state_file(home).read_bytes())
    except (OSError, ValueError):
        return None
    services = {name: ServiceState(**one) for name, one in body.pop("services").items()}
    return StackState(**body, services=services)


def take_lock(home: Path) -> IO[str]:
    """Become the one supervisor of ``home`` until the returned file closes. Raises AlreadyUp."""
    home.mkdir(parents=True, exist_ok=True)
    file = (home / "supervisor.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise AlreadyUp(f"The stack in {home} is already up (supervisor {holder}); see `fleetstream status`") from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _held(home: Path) -> bool:
    path = home / "supervisor.lock"
    if not path.exists():
        return False
    with path.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
    return False
