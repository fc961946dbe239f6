"""A typed client of this API, for scripts and notebooks: pages, files and the feed, with patience where it is allowed.

``pip install 'fleetstream[client]'`` brings httpx; pandas, Polars and PyArrow are imported by the methods that give
their tables. Questions are repeated after 429, 503 and lost connections, also where a body breaks off; changes
(``put``, ``post``) are sent once.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
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

    def series(
        self, asset: str, signal: str, start: datetime, end: datetime, *, points: int = 1_000, keep: str = "extremes",
        source: str = "auto",
    ) -> Json:  # fmt: skip
        """A chart of about ``points`` points: columns of readings or of windows, gaps as None."""
        question = {
            "signal": signal, "from": start.isoformat(), "to": end.isoformat(), "points": points, "keep": keep,
            "source": source,
        }  # fmt: skip
        return self.get(f"/assets/{_quoted(asset)}/series", question)

    def questions(self) -> list[Json]:
        """Every fleet question: what it means, what it takes, what its answer's columns are."""
        found: list[Json] = self.get("/questions")["items"]
        return found

    def ask(
        self, question: str, *, fleet: str | None = None, asset: str | None = None, start: datetime | None = None,
        end: datetime | None = None, threshold: float | None = None, max_age_s: float | None = None,
    ) -> Json:  # fmt: skip
        """The whole answer to a fleet question, its pages put together; look at ``complete`` when ``end`` is young.
        A question about now gives each page as of its own moment."""
        said = {
            "fleet": fleet, "asset": asset, "from": start and start.isoformat(), "to": end and end.isoformat(),
            "threshold": threshold, "max_age_s": max_age_s,
        }  # fmt: skip
        asked = {name: value for name, value in said.items() if value is not None}
        path = f"/questions/{_quoted(question)}"
        told = page = self.get(path, asked)
        while page["next"] is not None:
            page = self.get(path, {**asked, "cursor": page["next"]})
            told["items"] += page["items"]
        return told | {"next": None}

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
        found: Json = self._patiently(path, question or {}, "application/json", _whole)
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

        def keep(response: httpx.Response) -> None:
            sink.seek(0)
            sink.truncate()
            for chunk in response.iter_bytes(CHUNK_BYTES):
                sink.write(chunk)

        self._patiently("/readings", question, media, keep)

    def _patiently(
        self, path: str, question: Mapping[str, Any], media: str, take: Callable[[httpx.Response], Any]
    ) -> Any:
        """What ``take`` makes of a good answer. Whatever may pass is waited out and asked again, also when the body
        breaks off while ``take`` reads it: at most ``attempts`` requests in all."""
        pause_s = self._patience.pause_s
        for left in range(self._patience.attempts - 1, -1, -1):
            request = self._http.build_request("GET", PREFIX + path, params=question, headers={"Accept": media})
            try:
                response = self._http.send(request, stream=True)
                try:
                    if response.status_code < 400:
                        return take(response)
                    if response.status_code not in WORTH_REPEATING or not left:
                        response.read()
                        self._told(response)
                    asked_s = _retry_after_s(response.headers)
                finally:
                    response.close()
            except httpx.TransportError:
                if not left:
                    raise
                asked_s = 0.0
            self._sleep(max(pause_s, asked_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

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


def _whole(response: httpx.Response) -> Json:
    response.read()
    found: Json = response.json()
    return found


def _retry_after_s(headers: httpx.Headers) -> float:
    """Seconds that the service asks for (RFC 9110 10.2.3): a number, or a date, which is held against the answer's own
    Date so that this machine's clock does not matter; 0 for what cannot be read."""
    said = headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return float(said[:6])
    try:
        return (parsedate_to_datetime(said) - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _quoted(name: str) -> str:
    """A name as one piece of a path."""
    from urllib.parse import quote

    return quote(name, safe="")
