"""Raw data that nobody claims: removed when the last piece came too long ago, so that a device's quota frees itself.

Its record may have been overwritten on the device before it was sent, or its last piece lost with the device. A device
that still holds the data sends them again from the first piece, since nothing told it that they were stored. The time
is that of taking, not of receipt: when a lost store reads the log again, old pieces wait for their record as new ones.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from stream_jobs.evidence import statements as sql
from stream_jobs.evidence.chain import at
from stream_jobs.sinks.connection import Connection, repeated

AT_ONCE: Final = 100
"""Attachments of one transaction, each of at most 8 MiB; the next round takes the rest."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Removes what waited longer than ``keep_ms`` after its last piece."""

    dsn: str
    keep_ms: int

    def sweep(self, now_ms: int) -> int:
        """How many attachments were removed. Raises StoreBusy (TryLater)."""
        return repeated(self.dsn, lambda connection: _sweep(connection, now_ms - self.keep_ms))[0]


def _sweep(connection: Connection, before_ms: int) -> int:
    with connection.transaction(), connection.cursor() as cursor:
        keys = cursor.execute(sql.WAITED_TOO_LONG, (at(before_ms), AT_ONCE)).fetchall()
        for device_key, event_id, digest, held_bytes in keys:
            cursor.execute(sql.FORGET_PIECES, (device_key, event_id, digest))
            cursor.execute(sql.FORGET_ATTACHMENT, (device_key, event_id, digest))
            log.warning(
                "event=unclaimed_data_removed device_key=%d event_id=%s sha256=%s bytes=%d",
                device_key, event_id, digest.hex(), held_bytes,
            )  # fmt: skip
    return len(keys)
