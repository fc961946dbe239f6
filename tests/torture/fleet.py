"""Devices' processes as the harness sees them: start, order, kill, and what their pipes say."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_agent.journal import MOVED, AcceptedPacket
from infra.guard import Guard
from tests.torture.device import DevicesFile
from tests.torture.history import History, Identity

ROOT = Path(__file__).parents[2]
END_S = 90.0


class Fleet:
    """One process of devices; whatever happens to it, its spools stay and it can be started again."""

    def __init__(self, name: str, told: DevicesFile, folder: Path, history: History, guard: Guard) -> None:
        self.name = name
        self.folder = folder
        self._told, self._history, self._guard = told, history, guard
        self._file = folder.with_name(f"{name}.json")
        self._log = folder.with_name(f"{name}.log")
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._lock = threading.RLock()
        self._wanted = False
        self._mood: dict[str, Any] = {}
        self._own: dict[Identity, str] = {}
        self.undrained = -1
        """Devices with something left to send, as last reported; -1 before the first report of a process."""
        self.exits: list[str] = []
        """Ends that nobody asked for."""

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, **mood: Any) -> None:
        """A new process on the same spools; what was ordered before holds unless ``mood`` says otherwise."""
        with self._lock:
            self._mood.update(mood)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._told), encoding="utf-8")
            command = [sys.executable, "-m", "tests.torture.device", str(self._file), json.dumps(self._mood)]
            with self._log.open("ab") as errors:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT,
                    start_new_session=True,
                )  # fmt: skip
            self._guard.watch(self._process.pid)
            self.undrained = -1
            self._wanted = True
            self._reader = threading.Thread(target=self._read, args=(self._process,), name=f"read-{self.name}")
            self._reader.start()

    def order(self, *, once: bool = False, **mood: Any) -> None:
        """Tell the process; also the next one, unless it is for ``once``."""
        with self._lock:
            if not once:
                self._mood.update(mood)
            process = self._process
            if process is not None and process.stdin is not None and not process.stdin.closed:
                with contextlib.suppress(OSError):
                    process.stdin.write(json.dumps(mood).encode() + b"\n")
                    process.stdin.flush()

    def kill(self) -> bool:
        """SIGKILL; False when nothing ran."""
        with self._lock:
            self._wanted = False
            process = self._process
            if process is None or process.poll() is not None:
                return False
            process.kill()
            self._gone(process)
            return True

    def stop(self) -> None:
        """SIGTERM: nothing is drained, the spool keeps the rest; killed when it does not end."""
        with self._lock:
            self._wanted = False
            process = self._process
            if process is None:
                return
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                try:
                    process.wait(END_S)
                except subprocess.TimeoutExpired:
                    self.exits.append(f"{self.name} did not end within {END_S:.0f} s of SIGTERM")
                    process.kill()
            self._gone(process)

    def look_after(self) -> None:
        """Start again what ended by itself, and remember that it did."""
        with self._lock:
            process = self._process
            if self._wanted and process is not None and process.poll() is not None:
                self.exits.append(f"{self.name} ended by itself with code {process.returncode}")
                self._gone(process)
                self.start()

    def limit_files(self, most_bytes: int | None) -> None:
        """No file of the process may grow beyond this; None lifts the limit."""
        with self._lock:
            pid = self.pid
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes or resource.RLIM_INFINITY, -1))

    def copy_spools(self, into: Path) -> None:
        """An image of the devices' storage, as a backup or a cloned disk would hold it."""
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(self.folder, into)

    def image(self, name: str, folder: Path) -> Fleet:
        """The same devices with the same keys on other storage."""
        devices = [{**one, "spool": str(folder / Path(one["spool"]).name)} for one in self._told["devices"]]
        told: Any = {**self._told, "devices": devices}
        return Fleet(name, told, folder, self._history, self._guard)

    def _note(self, packet: AcceptedPacket) -> None:
        """A packet that moves is named without its hash: of two clones, each knows its own."""
        identity = packet.device, packet.boot_epoch, packet.seq
        if packet.lane != MOVED:
            self._own[identity] = packet.sha256
            self._history.accept(*identity, packet.sha256)
        elif identity in self._own:
            self._history.move(*identity, self._own[identity])

    def _gone(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._guard.forget(process.pid)
        if self._reader is not None:
            self._reader.join()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Until the pipe ends; a torn last line was never sent to anybody."""
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith(b"\n"):
                return
            kind, *told = json.loads(line)
            if kind == "a":
                packet = AcceptedPacket(*told[0])
                self._note(packet)
            elif kind == "k":
                self._history.ack(*told)
            elif kind == "h":
                self._history.heartbeat(*told)
            else:
                self.undrained = told[0]


def wait_until(
    what: Callable[[], bool], timeout_s: float, stop: threading.Event | None = None, every_s: float = 0.1
) -> bool:
    """Whether it came true in time; a set ``stop`` ends the wait."""
    deadline_s = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > deadline_s or (stop is not None and stop.is_set()):
            return False
        time.sleep(every_s)
    return True


def can_mount(folder: Path, size: str) -> bool:
    """Put a small file system under ``folder`` (only root can); False when this machine does not let us."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        return False
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    return done.returncode == 0


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
