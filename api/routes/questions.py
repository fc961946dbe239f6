"""Fleet questions: what can be asked, and the answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from api.exports import export
from api.fleet.asking import Parameters, ask, columns_of, find_question, layout_of, page
from api.fleet.menu import QUESTIONS
from api.forms import Form, documented
from api.routes.common import PREFIX, Cursor, From, TelemetryCaller, To, Wanted
from api.services import Parts
from api.shapes_questions import Answer, Questions, answered, describe
from api.shapes_series import plain
from api.tables import Part

router = APIRouter(prefix=PREFIX, tags=["questions"])
PAGE, ROWS = 5_000, 20_000
Fleet = Annotated[str | None, Query(min_length=1, max_length=200, description="only this fleet", examples=["East"])]
Asset = Annotated[str | None, Query(min_length=1, max_length=200, description="only this vehicle", examples=["car-1"])]
Threshold = Annotated[float | None, Query(description="another limit than the question's own", examples=[10.0])]
MaxAge = Annotated[
    float | None, Query(gt=0, le=1e9, description="older values are no answer about now, s; a day when not said")
]


@router.get("/questions", response_model=Questions)
async def questions(caller: TelemetryCaller) -> Response:
    """Every fleet question: what it means, what it takes, what its answer's columns are."""
    return plain({"items": [describe(one) for one in QUESTIONS]})


@router.get("/questions/{question}", response_model=Answer, responses=documented())
async def ask_question(
    parts: Parts, caller: TelemetryCaller, wanted: Wanted,
    question: Annotated[str, Path(min_length=1, max_length=100, description="its name", examples=["low-fuel"])],
    fleet: Fleet = None, asset: Asset = None, start: From = None, end: To = None, threshold: Threshold = None,
    max_age_s: MaxAge = None, cursor: Cursor = None, limit: Annotated[int, Query(ge=1, le=ROWS)] = PAGE,
) -> Response:  # fmt: skip
    """One question about the caller's vehicles. Keep the parameters while following ``next``; it keeps the range.

    Any form but JSON holds the whole answer.
    """
    named = find_question(question)
    said = Parameters(fleet, asset, start, end, threshold, max_age_s, cursor)
    asked, after = ask(named, said, parts.now(), parts.settings.windows_range_s)
    # vehicles and what they told come in two statements: who is enrolled in between must not be in one of them only
    async with parts.store.transaction(caller.tenant_id, one_moment=True) as connection:
        found = await named.answer(connection, asked)
    if wanted is not Form.JSON:
        told = f"{named.name}_{asked.now:%Y%m%dT%H%M%SZ}"
        return await export(
            wanted, layout_of(named), _whole(columns_of(named, found.rows)), told, None, parts.exports, caller.key_id
        )
    shown, more = page(named, asked, found.rows, after, limit)
    return plain(answered(named, asked, found, shown, more))


async def _whole(columns: Part) -> AsyncIterator[Part]:
    """A file of one part: an answer is whole before it is sent."""
    yield columns
