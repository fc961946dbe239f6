"""The gateway PUBACKs whatever Kafka has confirmed, newest first, instead of in the order of receipt.

No reading is lost by it: a broker frees messages by packet id and the agent's spool waits for the end-to-end
acknowledgement. Only the bytes on the wire show it, which is why the harness listens there.
"""

from __future__ import annotations

from unittest import mock

from gateway.window import AckWindow, Entry


def release(self: AckWindow) -> list[Entry]:
    finished = [entry for entry in self._entries if entry.finished]
    for entry in finished:
        self._entries.remove(entry)
        self._bytes -= entry.size_bytes
    return finished[::-1]


def mutate() -> None:
    mock.patch.object(AckWindow, "release", release).start()
