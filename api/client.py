"""A typed client of this API, for scripts and notebooks: pages, files and the feed, with patience where it is allowed.

``pip install 'fleetstream[client]'`` brings httpx; pandas, Polars and PyArrow are imported by the methods that give
their tables. Questions are repeated after 429, 503 and lost connections; changes (``put``, ``post``) are sent once.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

PREFIX: Final = "/api/v1"
ARROW: Final = "application/vnd.apache.arrow.stream"
WORTH_REPEATING: Final = frozenset({429, 503})
LONGEST_PAUSE_S: Final = 30.0
CHUNK_BYTES: Final = 1 << 20

Json = dict[str, Any]


class ApiProblem(Exception):
    """What the service refused, and why (RFC 9457); ``code`` is stable, ``detail`` says what to do."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status, self.code, self.detail = status, code, detail


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a question is repeated; the pause doubles from ``pause_s``, or is what the service asks for."""

    attempts: int = 5
    pause_s: float = 0.5


class Client:
    """One key at one service; a context manager. ``sleep`` is passed in for tests."""

    def __init__(
        self, base_url: str, key: str, *, patience: Patience = Patience(), timeout_s: float = 60.0,
        sleep: Callable[[float], None] = time.sleep, transport: httpx.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=timeout_s, transport=transport)
        self._patience, self._sleep = patience, sleep

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def assets(self, *, search: str = "", group: str | None = None, signals: Sequence[str] = ()) -> Iterator[Json]:
        """Every asset with the age of its data."""
        return self._items("/assets", {"search": search, "group": group, "signal": list(signals)})

    def latest(self, asset: str) -> Json:
        """The newest value of every signal of an asset."""
        found: Json = self.get(f"/assets/{_quoted(asset)}/latest")["asset"]
        return found

    def readings(self, asset: str, signal: str, start: datetime, end: datetime) -> Iterator[Json]:
        """Every reading in [start, end), oldest first, page by page."""
        question = {"signal": signal, "from": start.isoformat(), "to": end.isoformat(), "limit": 20_000}
        return self._items(f"/assets/{_quoted(asset)}/readings", question)

    def windows(self, asset: str, signal: str, start: datetime, end: datetime, width_s: int = 60) -> Iterator[Json]:
        """Every window that starts in [start, end)."""
        question = {"signal": signal, "from": start.isoformat(), "to": end.isoformat(), "width_s": width_s}
        return self._items(f"/assets/{_quoted(asset)}/windows", question)

    def feed(self, after: str | None = None, *, limit: int = 500, wait_s: float = 20.0) -> Iterator[Json]:
        """Packets for ever, in the order of the store; keep the ``cursor`` of the last one that you have dealt with and
        begin there after a restart. ``after``: such a cursor, 'end' for what comes from now on, None for the oldest
        that is kept. Raises ApiProblem (410) when packets behind the cursor have gone."""
        while True:
            question = {"after": after, "limit": limit, "wait_s": wait_s}
            page = self.get("/feed/readings", {name: value for name, value in question.items() if value is not None})
            yield from page["items"]
            after = page["next"]

    def table(self, asset: str, start: datetime, end: datetime, signals: Sequence[str] = ()) -> pa.Table:
        """Readings of several signals (none named: all) as an Arrow table with unit and quality in each row."""
        import pyarrow as pa

        sink = io.BytesIO()
        self._download(asset, start, end, signals, ARROW, sink)
        sink.seek(0)
        return pa.ipc.open_stream(sink).read_all()

    def frame(self, asset: str, start: datetime, end: datetime, signals: Sequence[str] = ()) -> pd.DataFrame:
        """The same for pandas."""
        found: pd.DataFrame = self.table(asset, start, end, signals).to_pandas()
        return found

    def polars(self, asset: str, start: datetime, end: datetime, signals: Sequence[str] = ()) -> Any:
        """The same as a ``polars.DataFrame``."""
        import polars  # type: ignore[import-not-found]

        return polars.from_arrow(self.table(asset, start, end, signals))

    def save(
        self, file: Path, asset: str, start: datetime, end: datetime, signals: Sequence[str] = (),
        media: str = "application/vnd.apache.parquet",
    ) -> None:  # fmt: skip
        """Into a file; one that broke off never stands under this name."""
        part = file.with_name(file.name + ".part")
        with part.open("wb") as sink:
            self._download(asset, start, end, signals, media, sink)
        part.replace(file)

    def import_fleet(self, csv: bytes, *, dry_run: bool = False) -> Json:
        """Enrol a fleet; raises ApiProblem('import_refused') with nothing changed."""
        headers = {"Content-Type": "text/csv"}
        params = {"dry_run": dry_run}
        return self._told(self._http.post(f"{PREFIX}/fleet/import", params=params, content=csv, headers=headers))

    def set_group(self, group: str, assets: Sequence[str]) -> Json:
        """Make a group hold exactly these assets."""
        return self._told(self._http.put(f"{PREFIX}/groups/{_quoted(group)}", json={"assets": list(assets)}))

    def get(self, path: str, question: Mapping[str, Any] | None = None) -> Json:
        """Any resource below /api/v1 as JSON. Raises ApiProblem."""
        with self._asked(path, question or {}, "application/json") as response:
            response.read()
            found: Json = response.json()
            return found

    def _items(self, path: str, question: Mapping[str, Any]) -> Iterator[Json]:
        asked = {name: value for name, value in question.items() if value not in (None, "", [])}
        while True:
            page = self.get(path, asked)
            yield from page["items"]
            if page["next"] is None:
                return
            asked["cursor"] = page["next"]

    def _download(
        self, asset: str, start: datetime, end: datetime, signals: Sequence[str], media: str, sink: Any
    ) -> None:
        question = {"asset": asset, "from": start.isoformat(), "to": end.isoformat(), "signal": list(signals)}
        for left in range(self._patience.attempts - 1, -1, -1):
            sink.seek(0)
            sink.truncate()
            try:
                with self._asked("/readings", question, media) as response:
                    for chunk in response.iter_bytes(CHUNK_BYTES):
                        sink.write(chunk)
                return
            except httpx.TransportError:
                if not left:
                    raise

    @contextmanager
    def _asked(self, path: str, question: Mapping[str, Any], media: str) -> Iterator[httpx.Response]:
        """An answer whose body is still to be read; refusals that may pass are waited out before."""
        pause_s = self._patience.pause_s
        for left in range(self._patience.attempts - 1, -1, -1):
            request = self._http.build_request("GET", PREFIX + path, params=question, headers={"Accept": media})
            try:
                response = self._http.send(request, stream=True)
            except httpx.TransportError:
                if not left:
                    raise
                self._sleep(pause_s)
            else:
                if response.status_code not in WORTH_REPEATING or not left:
                    break
                response.close()
                self._sleep(max(pause_s, float(response.headers.get("retry-after", 0))))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        try:
            if response.status_code >= 400:
                response.read()
                self._told(response)
            yield response
        finally:
            response.close()

    def _told(self, response: httpx.Response) -> Json:
        """The body. Raises ApiProblem."""
        if response.status_code >= 400:
            try:
                body = response.json()
            except ValueError:
                body = {}
            raise ApiProblem(response.status_code, body.get("code", "unknown"), body.get("detail", response.text[:200]))
        found: Json = response.json()
        return found


def _quoted(name: str) -> str:
    """A name as one piece of a path."""
    from urllib.parse import quote

    return quote(name, safe="")
