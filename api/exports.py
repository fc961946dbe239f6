"""Files of any length from pages of the store: each page is asked for, encoded and sent before the next one is read.

No connection is held while a slow client takes its time. The first page is read before the answer begins, so every
error up to there is a problem document; what fails later breaks the connection off, which every HTTP client tells from
a whole answer. Encoding runs beside the event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from fastapi.responses import Response, StreamingResponse

from api.errors import QueryTooLong, StoreUnavailable
from api.forms import Form, disposition
from api.limits import Seats
from api.tables import Encoder, Layout, Part, encoder

log = logging.getLogger(__name__)

PAGE_ROWS = 50_000
"""Rows of one part: a few tens of megabytes while it is encoded, and a row group in Parquet."""


def tag_of(*parts: object) -> str:
    """A strong ETag over everything that decides an answer."""
    return '"' + hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32] + '"'


def unchanged(if_none_match: str | None, tag: str | None) -> Response | None:
    """304 when the caller has this answer already."""
    if tag is None or not if_none_match:
        return None
    known = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    return Response(status_code=304, headers=caching(tag)) if tag in known or "*" in known else None


def caching(tag: str | None) -> dict[str, str]:
    """Headers of an answer that has several forms; with a tag the caller may keep it and ask whether it still holds."""
    headers = {"Vary": "Accept, Authorization"}
    return headers if tag is None else headers | {"ETag": tag, "Cache-Control": "private, no-cache"}


async def export(
    form: Form, layout: Layout, parts: AsyncIterator[Part], name: str, tag: str | None, seats: Seats, holder: str
) -> StreamingResponse:
    """Stream ``parts`` as a download; ``holder`` takes one of its seats until the end. Raises what the first part does,
    and TooMany."""
    seats.take(holder)
    handed_over = False

    def give_back() -> None:
        seats.give_back(holder)

    try:
        first = await anext(parts, None)
        headers = caching(tag) | {"Content-Disposition": disposition(name, form)}
        body = Body(encoder(form, layout), first, parts, give_back)
        handed_over = True
        return StreamingResponse(body, headers=headers, media_type=form.value.header)
    finally:
        if not handed_over:
            give_back()


class Body:
    """The bytes of one file; gives its seat back however it ends, also when nobody ever began to read it."""

    def __init__(
        self, made: Encoder, first: Part | None, rest: AsyncIterator[Part], give_back: Callable[[], None]
    ) -> None:
        self._encoder, self._first, self._rest = made, first, rest
        self._give_back: Callable[[], None] | None = give_back

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    if piece:
                        yield piece
        except (StoreUnavailable, QueryTooLong) as error:
            log.warning("event=export_broken_off reason=%s", error)
            raise
        finally:
            self._end()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        yield self._encoder.head()
        part = self._first
        self._first = None
        while part is not None:
            yield await asyncio.to_thread(self._encoder.part, part)
            part = await anext(self._rest, None)
        yield self._encoder.tail()
