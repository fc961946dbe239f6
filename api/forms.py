"""In which form an answer is wanted: content negotiation by Accept (RFC 9110), and the names of files. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from urllib.parse import quote

from api.errors import NotAcceptable


@dataclass(frozen=True, slots=True)
class Kind:
    """A media type, what its files end in, and what it is for."""

    media: str
    suffix: str
    text: str
    charset: str = ""

    @property
    def header(self) -> str:
        """The Content-Type."""
        return self.media + self.charset


class Form(Enum):
    """The menu; the first is what a caller gets who does not mind."""

    JSON = Kind("application/json", "json", "a page with a cursor")
    NDJSON = Kind("application/x-ndjson", "ndjson", "one JSON object per line")
    CSV = Kind("text/csv", "csv", "RFC 4180, first line names the columns", "; charset=utf-8; header=present")
    ARROW = Kind("application/vnd.apache.arrow.stream", "arrows", "Arrow IPC stream")
    PARQUET = Kind("application/vnd.apache.parquet", "parquet", "Parquet, zstd")


FORMS: Final = tuple(Form)
MOST_RANGES: Final = 32
"""Media ranges of one Accept header that are looked at."""


def choose(accept: str | None, offered: Sequence[Form] = FORMS) -> Form:
    """The best of ``offered``: by quality, then by the menu's order. Raises NotAcceptable with the list."""
    if not accept or not accept.strip():
        return offered[0]
    ranges = [_read_range(part) for part in accept.split(",")[:MOST_RANGES]]
    scored = [(_quality(form.value.media, ranges), -at) for at, form in enumerate(offered)]
    quality, place = max(scored)
    if quality <= 0:
        raise NotAcceptable("not_acceptable", "this can be had as " + ", ".join(one.value.media for one in offered))
    return offered[-place]


def _read_range(text: str) -> tuple[str, float]:
    """(media range, quality); what cannot be read is wanted by nobody."""
    media, *parameters = (part.strip().lower() for part in text.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            known = re.fullmatch(r"0(\.\d{0,3})?|1(\.0{0,3})?", value.strip())
            return media, float(known[0]) if known else 0.0
    return media, 1.0


def _quality(media: str, ranges: Sequence[tuple[str, float]]) -> float:
    """What the most exact of the ranges that match says; 0.0 when none does."""
    family = media.split("/")[0] + "/*"
    for exact in (media, family, "*/*"):
        found = [quality for name, quality in ranges if name == exact]
        if found:
            return max(found)
    return 0.0


def disposition(name: str, form: Form) -> str:
    """Content-Disposition of a download (RFC 6266): plain ASCII for everybody, the whole name beside it."""
    whole = f"{name}.{form.value.suffix}"
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", whole).strip("-") or f"download.{form.value.suffix}"
    header = f'attachment; filename="{plain}"'
    return header if plain == whole else f"{header}; filename*=UTF-8''{quote(whole, safe='')}"


def documented(json_schema: dict[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    """The other forms, for OpenAPI."""
    text = {form.value.media: {"schema": {"type": "string"}} for form in (Form.NDJSON, Form.CSV)}
    binary = {
        form.value.media: {"schema": {"type": "string", "format": "binary"}} for form in (Form.ARROW, Form.PARQUET)
    }
    content: dict[str, Any] = text | binary
    if json_schema is not None:
        content = {Form.JSON.value.media: json_schema} | content
    return {
        200: {"content": content, "description": "in the form that Accept asks for"},
        304: {"description": "nothing has changed since the answer with this ETag"},
        406: {"description": "none of the forms in Accept can be had"},
    }
