"""Start, watch and end one child process in a process group of its own.

Nothing here knows what the child does. A group is ended as a whole, so that a child's children go with it.
"""

from __future__ import annotations

import logging
import os
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import ServiceFailed, SetupError

LOG_LIMIT_BYTES = 64 * 1024 * 1024
"""A log larger than this is set aside once (``.1``) when its service starts."""

FREE_PORTS = range(20_000, 32_000)
_POLL_S = 0.05
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """How to run one service. ``user`` is the system user to become (only root can)."""

    name: str
    arguments: Sequence[str]
    log_file: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 20.0
    folder: Path | None = None


class Child:
    """A running command; ``stop`` asks politely, then kills the group."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self._process = _spawn(command)
        self.started_s = time.monotonic()

    @property
    def pid(self) -> int:
        """Also the id of the process group."""
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def exit_code(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL the whole group and reap the child."""
        _signal_group(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Ask the child to end, wait, then kill what is left of its group."""
        if self.alive():
            self._process.send_signal(self.command.stop_signal)
            try:
                self._process.wait(self.command.stop_timeout_s)
            except subprocess.TimeoutExpired:
                log.warning("service=%s event=killed after_s=%s", self.command.name, self.command.stop_timeout_s)
        _signal_group(self.pid, signal.SIGKILL)
        self._process.wait()


def wait_ready(child: Child, ready: Callable[[], bool], timeout_s: float) -> None:
    """Return when ``ready`` says so. Raises ServiceFailed when the child ends or the time is up."""
    name, deadline = child.command.name, time.monotonic() + timeout_s
    while True:
        is_ready, code = ready(), child.exit_code()
        if code is not None:  # asked last: somebody else may answer on a dead child's port
            raise ServiceFailed(f"{name} ended with code {code} while starting: {_last_words(child.command.log_file)}")
        if is_ready:
            return
        if time.monotonic() > deadline:
            raise ServiceFailed(f"{name} was not ready within {timeout_s:.0f} s; see {child.command.log_file}")
        time.sleep(_POLL_S)


def running(pid: int) -> bool:
    """Whether a process still does something; one that has ended and waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError, PermissionError):
        return False


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """Different loopback TCP ports that nobody uses now and none of which is in ``taken``.

    They lie below the range that the kernel gives to outgoing connections, which could take one of them before
    its server binds it.
    """
    chance = random.SystemRandom()
    found: list[int] = []
    for port in chance.sample(FREE_PORTS, len(FREE_PORTS)):
        if len(found) == count:
            return found
        if port not in taken and not port_in_use(port):
            found.append(port)
    raise SetupError(
        f"Fewer than {count} ports between {FREE_PORTS[0]} and {FREE_PORTS[-1]} are free; close some program"
    )


def free_port() -> int:
    """One of ``free_ports``."""
    return free_ports(1)[0]


def port_in_use(port: int) -> bool:
    """Whether a loopback TCP port cannot be bound (a connection lingering after a stop does not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


def _spawn(command: Command) -> subprocess.Popen[bytes]:
    command.log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if command.log_file.exists() and command.log_file.stat().st_size > LOG_LIMIT_BYTES:
        command.log_file.replace(command.log_file.with_suffix(".log.1"))
    with command.log_file.open("ab") as output:
        try:
            return subprocess.Popen(
                list(command.arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **command.environment},
                cwd=command.folder,
                user=command.user,
                group=pwd.getpwnam(command.user).pw_gid if command.user else None,
                extra_groups=[] if command.user else None,
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f"{command.name} could not be started ({error}); run `fleetstream doctor`") from error


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _last_words(log_file: Path) -> str:
    with log_file.open("rb") as file:
        file.seek(max(0, log_file.stat().st_size - 2_000))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return " | ".join(lines[-3:])[:600] or f"see {log_file}"
