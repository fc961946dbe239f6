"""The sink commits its offsets apart from the rows: who dies between the two has skipped what he did not store.

The two commits stand ``APART_S`` apart, longer than from cut to cut in the test, so that a few cuts suffice where a
careless sink might live for weeks: the retry finds the offsets taken.
"""

from __future__ import annotations

import time
from unittest import mock

import numpy as np

from stream_jobs.sinks.base import Receipt
from stream_jobs.sinks.connection import Connection
from stream_jobs.sinks.tally import Tally, open_tally
from stream_jobs.sinks.transaction import NOBODY, Aside, Batch, _advance, _lock_offsets

APART_S = 6.0


def commit(self: Batch, connection: Connection, aside: Aside = NOBODY) -> list[Receipt]:
    parts = self._parts
    sources = sorted(
        (source for part in parts for source in part.sources), key=lambda one: (one.topic_id, one.partition)
    )
    with connection.transaction(), connection.cursor(binary=True) as cursor:
        held = _lock_offsets(cursor, sources)
        fresh = [part.offset >= np.array([held[one] for one in part.sources])[part.source] for part in parts]
        pairs = list(zip(parts, fresh, strict=True))
        _advance(cursor, [open_tally(part, at, new) for part, new in pairs for at in range(len(part.sources))])
    time.sleep(APART_S)
    tallies: list[Tally] = []
    with connection.transaction(), connection.cursor(binary=True) as cursor:
        for part, new in pairs:
            tallies += self._store(cursor, part, new, aside)
    return [tally.receipt(0) for tally in tallies]


def mutate() -> None:
    mock.patch.object(Batch, "commit", commit).start()
