"""End what a dead parent left behind: a small process that watches its parent through a pipe.

The parent writes ``+pid`` when it starts a process group and ``-pid`` when that group has ended. When the pipe
closes (the parent was killed), every group still on the list is killed. A clean parent leaves an empty list.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable


class Guard:
    """The parent's end of the pipe; safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "infra.guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the watcher; groups still on its list are killed."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process.stdin and self._process.poll() is None:
                self._process.stdin.write(line.encode())
                self._process.stdin.flush()


def watch(lines: Iterable[str]) -> set[int]:
    """Read until the pipe closes; the groups that are still running then."""
    groups: set[int] = set()
    for line in lines:
        change = groups.add if line[0] == "+" else groups.discard
        change(int(line[1:]))
    return groups


def main() -> None:
    for group in watch(sys.stdin):
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


if __name__ == "__main__":
    main()
