"""Rows as text or binary tables, part by part, so that a file of any length needs the memory of one part.

Each part is columns by name. Times are Unix epoch milliseconds in, RFC 3339 in UTC (text) or timestamps in UTC
(binary) out; a missing value is null, or empty in CSV, never zero.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Protocol

from api.forms import Form

if TYPE_CHECKING:
    import pyarrow as pa

TEXT, TIME, REAL, WHOLE, FLAG = "text", "time", "real", "whole", "flag"
"""Kinds of columns: words that repeat, moments in ms, doubles, integers, truth."""

Part = Mapping[str, Sequence[Any]]
Layout = Mapping[str, str]
"""Column to its kind, in order."""

READINGS: Final[Layout] = {
    "asset": TEXT, "signal": TEXT, "measured_at": TIME, "value": REAL, "unit": TEXT, "quality": TEXT, "device": TEXT,
    "boot_epoch": WHOLE, "seq": WHOLE,
}  # fmt: skip
WINDOWS: Final[Layout] = {
    "asset": TEXT, "signal": TEXT, "unit": TEXT, "width_s": WHOLE, "starts_at": TIME, "n": WHOLE, "min": REAL,
    "max": REAL, "mean": REAL, "stddev": REAL, "last": REAL, "revision": WHOLE, "closed": FLAG, "final": FLAG,
    "device": TEXT,
}  # fmt: skip
"""Windows hold good samples only, so they have no quality: what is bad is in none."""

FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet would run a cell that begins so (OWASP, CSV injection); a quote mark before it makes it a word."""


class Encoder(Protocol):
    """One answer in one form; each method returns what can be sent so far."""

    def head(self) -> bytes: ...
    def part(self, columns: Part) -> bytes: ...
    def tail(self) -> bytes: ...


def encoder(form: Form, layout: Layout) -> Encoder:
    """For any form but JSON pages."""
    if form is Form.NDJSON:
        return Lines(layout)
    if form is Form.CSV:
        return Csv(layout)
    if form is Form.ARROW:
        return ArrowStream(layout)
    if form is Form.PARQUET:
        return Parquet(layout)
    raise ValueError(f"{form} is written by its route")


@dataclass(frozen=True, slots=True)
class Lines:
    """One JSON object per line."""

    layout: Layout

    def head(self) -> bytes:
        return b""

    def part(self, columns: Part) -> bytes:
        texts = [_json_texts(columns[name], kind) for name, kind in self.layout.items()]
        line = "{" + ",".join(json.dumps(name) + ":%s" for name in self.layout) + "}\n"
        return "".join(line % row for row in zip(*texts, strict=True)).encode()

    def tail(self) -> bytes:
        return b""


def _json_texts(values: Sequence[Any], kind: str) -> list[str]:
    if kind == TEXT:
        known = {value: json.dumps(value, ensure_ascii=False) for value in set(values)}
        return [known[value] for value in values]
    if kind == TIME:
        return [f'"{one}"' for one in _moments(values)]
    if kind == REAL:
        return ["null" if one is None or not isfinite(one) else repr(float(one)) for one in values]
    if kind == FLAG:
        return ["true" if one else "false" for one in values]
    return ["null" if one is None else str(one) for one in values]


def _moments(values: Sequence[Any]) -> list[str]:
    """RFC 3339 with milliseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times: Any = pa.array(values, pa.timestamp("ms", "UTC"))
    found: list[str] = pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ").to_pylist()
    return found


@dataclass(frozen=True, slots=True)
class Csv:
    """A first line of names, then values; words that look like formulas are made harmless."""

    layout: Layout

    def head(self) -> bytes:
        return (",".join(f'"{name}"' for name in self.layout) + "\n").encode()

    def part(self, columns: Part) -> bytes:
        import pyarrow as pa
        import pyarrow.csv

        texts: dict[str, Any] = {}
        for name, kind in self.layout.items():
            if kind == TIME:
                texts[name] = pa.array(_moments(columns[name]))
            elif kind == TEXT:
                known = {value: value and harmless(value) for value in set(columns[name])}  # null stays null
                texts[name] = pa.array([known[value] for value in columns[name]], pa.utf8())
            else:
                texts[name] = _array(columns[name], kind)
        sink = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
        pyarrow.csv.write_csv(pa.table(texts), sink, options)
        return sink.getvalue().to_pybytes()

    def tail(self) -> bytes:
        return b""


def harmless(text: str) -> str:
    """The text as no spreadsheet will calculate it."""
    return "'" + text if text.startswith(FORMULA_STARTS) else text


class _Columnar(ABC):
    """Record batches go into a writer of theirs; what it has written leaves with each part."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._drain = Drain()
        file: Any = self._drain
        self._writer = self._open(file, _schema(layout))

    @abstractmethod
    def _open(self, file: Any, schema: Any) -> Any:
        """A writer with ``write_batch`` and ``close``; here, so that only such answers load Arrow."""

    def head(self) -> bytes:
        return self._drain.take()

    def part(self, columns: Part) -> bytes:
        self._writer.write_batch(_batch(columns, self._layout))
        return self._drain.take()

    def tail(self) -> bytes:
        self._writer.close()
        return self._drain.take()


class ArrowStream(_Columnar):
    """Record batches; words are dictionaries, which a batch replaces when its words are others."""

    def _open(self, file: Any, schema: Any) -> Any:
        import pyarrow as pa

        return pa.ipc.new_stream(file, schema)


class Parquet(_Columnar):
    """A row group per part; only the footer, which is short, waits for the end."""

    def _open(self, file: Any, schema: Any) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetWriter(file, schema, compression="zstd")


class Drain(io.RawIOBase):
    """A file that gives away what was written and remembers only how much it was."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        """Stays open: what was written last is still to be taken."""

    def take(self) -> bytes:
        found = b"".join(self._pieces)
        self._pieces.clear()
        return found


def _schema(layout: Layout) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, _type(kind)) for name, kind in layout.items()])


def _type(kind: str) -> pa.DataType:
    import pyarrow as pa

    if kind == TEXT:
        return pa.dictionary(pa.int32(), pa.utf8())
    if kind == TIME:
        return pa.timestamp("ms", "UTC")
    types: dict[str, pa.DataType] = {REAL: pa.float64(), WHOLE: pa.int64(), FLAG: pa.bool_()}
    return types[kind]


def _batch(columns: Part, layout: Layout) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [_array(columns[name], kind) for name, kind in layout.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=_schema(layout))


def _array(values: Sequence[Any], kind: str) -> pa.Array[Any]:
    import pyarrow as pa

    if kind == TEXT:
        found: pa.Array[Any] = pa.array(values, pa.utf8()).dictionary_encode()
        return found
    return pa.array(values, _type(kind))
