"""Arrow batches as Spark hands them over, brought together as ``Records``; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from stream_jobs.arithmetic import Ints
from stream_jobs.records import Kind, Nested, Records, Source
from stream_jobs.sinks.base import Topic


def chunked(batches: Iterable[pa.RecordBatch], limit_bytes: int) -> Iterator[pa.Table]:
    """Tables of about ``limit_bytes``: what one transaction takes at once."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= limit_bytes:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def assemble(table: pa.Table, topics: Mapping[str, Topic]) -> list[Records]:
    """One ``Records`` per kind; partitions in key order, each in offset order."""
    codes = _whole(table["topic"]).dictionary_encode()
    names = codes.dictionary.to_pylist()
    code = codes.indices.to_numpy(zero_copy_only=False)
    partition = table["partition"].to_numpy()
    offset = table["offset"].to_numpy()
    found = set(zip(code.tolist(), partition.tolist(), strict=True))
    pairs = sorted((topics[names[at]].topic_id, int(number), names[at]) for at, number in found)
    sources = tuple(Source(name, topic_id, number, topics[name].kind) for topic_id, number, name in pairs)
    index = np.full((len(names), int(partition.max()) + 1), -1, np.int64)
    for at, source in enumerate(sources):
        index[names.index(source.topic), source.partition] = at
    owner = index[code, partition]
    made = (_of_kind(table, sources, owner, offset, kind) for kind in Kind)
    return [one for one in made if one is not None]


def _of_kind(table: pa.Table, sources: tuple[Source, ...], owner: Ints, offset: Ints, kind: Kind) -> Records | None:
    mine = np.array([source.kind is kind for source in sources], np.bool_)
    rows = np.flatnonzero(mine[owner])
    if not len(rows):
        return None
    rows = rows[np.lexsort((offset[rows], owner[rows]))]
    if len(rows) != table.num_rows or (np.diff(rows) != 1).any():
        table = table.take(rows)
    renumber = np.cumsum(mine) - 1
    return Records(
        tuple(source for source in sources if source.kind is kind),
        renumber[owner[rows]],
        offset[rows],
        _whole(table["value"]),
        _whole(table["stamp"]),
        _whole(table["packet"]),
    )


def _whole(column: Nested) -> Nested:
    """One array that starts at its own beginning."""
    made = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    return made if made.offset == 0 else made.take(np.arange(len(made)))
