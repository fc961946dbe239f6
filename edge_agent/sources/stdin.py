"""Readings from a pipe, one JSON array ``[path, at_ms, value]`` or ``[path, at_ms, value, quality]`` per line.

The simplest way to feed the agent from any program. A thread reads the pipe, since a pipe cannot be asked without
waiting; between it and the agent lies a bounded queue, so a fast writer is slowed down by its pipe.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import TextIO

from contracts.errors import Rejected
from contracts.signals import catalogue
from edge_agent.sources.base import Reading

log = logging.getLogger("edge_agent.sources")
QUEUE_READINGS = 10_000
MAX_LINE_CHARACTERS = 4_096
"""A longer line is no reading; it is passed over in pieces, so it costs no more memory than this."""


class StdinSource:
    """Ends with its pipe; cannot be read again, so it has no cursor."""

    can_wait = True
    cursor: str | None = None

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._queue: queue.Queue[Reading] = queue.Queue(QUEUE_READINGS)
        self._ended = threading.Event()
        self.bad_lines = 0
        threading.Thread(target=self._listen, name="stdin", daemon=True).start()

    @property
    def finished(self) -> bool:
        return self._ended.is_set() and self._queue.empty()

    def seek(self, cursor: str) -> None:
        """A pipe cannot go back; what a cursor of another source said means nothing here."""

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        return [self._queue.get_nowait() for _ in range(min(limit, self._queue.qsize()))]

    def close(self) -> None:
        """The pipe belongs to the process."""

    def _listen(self) -> None:
        for line in self._lines():
            try:
                path, at_ms, value, *quality = json.loads(line)
                number = catalogue().by_path(path).number
                self._queue.put(Reading(number, int(at_ms), float(value), *map(int, quality[:1])))
            except (ValueError, TypeError, Rejected):
                self.bad_lines += 1
                log.warning("event=bad_line count=%d", self.bad_lines)
        self._ended.set()

    def _lines(self) -> Iterator[str]:
        """Lines of bounded length; an empty one, which is no reading, in place of a longer one."""
        while line := self._stream.readline(MAX_LINE_CHARACTERS):
            too_long = len(line) == MAX_LINE_CHARACTERS and not line.endswith("\n")
            yield "" if too_long else line
            while too_long and not line.endswith("\n") and line:
                line = self._stream.readline(MAX_LINE_CHARACTERS)
