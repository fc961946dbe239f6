"""From parameters to a question as it can be answered, and pages of its answer; pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from api.errors import BadQuestion, NotFound
from api.fleet.base import DAYS, Asked, Cell, Question, Row, Time, key_of
from api.fleet.menu import MENU
from api.questions import from_ms, make_cursor, read_cursor, to_ms
from api.tables import Layout, Part

CURSOR: Final = "question"
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a caller may say; None: nothing."""

    fleet: str | None = None
    asset: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    threshold: float | None = None
    max_age_s: float | None = None
    cursor: str | None = None


def find_question(name: str) -> Question:
    """Raises NotFound."""
    try:
        return MENU[name]
    except KeyError:
        detail = f"there is no question {name[:100]!r}; GET /api/v1/questions lists them"
        raise NotFound("no_such_question", detail) from None


def ask(question: Question, said: Parameters, now: datetime, longest_s: int) -> tuple[Asked, list[str] | None]:
    """The question as it was put, and the key of the last row that was told already. Raises BadQuestion."""
    _only_known(question, said)
    start_ms, end_ms, after = 0, 0, None
    if said.cursor is not None:
        start_ms, end_ms, after = _place(question, said.cursor)
    elif question.time.default_ms:
        start_ms, end_ms = _range(question.time, said, now, longest_s)
    threshold = question.threshold.default if question.threshold else 0.0
    asked = Asked(
        now, said.fleet, said.asset, start_ms, end_ms, threshold if said.threshold is None else said.threshold,
        DAY_S if said.max_age_s is None else said.max_age_s,
    )  # fmt: skip
    if not math.isfinite(asked.threshold):
        raise BadQuestion("bad_threshold", "a threshold is a number", "threshold")
    return asked, after


def page(
    question: Question, asked: Asked, rows: Sequence[Row], after: list[str] | None, limit: int
) -> tuple[Sequence[Row], str | None]:
    """Rows behind ``after``, at most ``limit``, and the cursor that goes on."""
    if after is not None:
        last = tuple((text != "", text[1:]) for text in after)
        rows = [row for row in rows if key_of(row, question.keys) > last]
    shown = rows[:limit]
    if len(rows) <= limit:
        return shown, None
    key = [f"={text}" if there else "" for there, text in key_of(shown[-1], question.keys)]
    return shown, make_cursor(CURSOR, [question.name, asked.start_ms, asked.end_ms, json.dumps(key)])


def layout_of(question: Question) -> Layout:
    """Columns of a file, in order."""
    return {column.name: column.kind for column in question.columns}


def columns_of(question: Question, rows: Sequence[Row]) -> Part:
    """Rows as columns of a file; times as Unix milliseconds."""
    told = list(zip(*rows, strict=True)) or [()] * len(question.columns)
    return {column.name: [_cell(one) for one in cells] for column, cells in zip(question.columns, told, strict=True)}


def _cell(cell: Cell) -> str | int | float | None:
    return to_ms(cell) if isinstance(cell, datetime) else cell


def _only_known(question: Question, said: Parameters) -> None:
    ranged, has_limit = question.time.default_ms > 0, question.threshold is not None
    for name, value, taken in (
        ("fleet", said.fleet, "fleet" in question.takes), ("asset", said.asset, "asset" in question.takes),
        ("from", said.start, ranged), ("to", said.end, ranged), ("threshold", said.threshold, has_limit),
        ("max_age_s", said.max_age_s, "max_age_s" in question.takes),
    ):  # fmt: skip
        if value is not None and not taken:
            raise BadQuestion("not_taken", f"{question.name} takes no {name}; leave it out", name)
    if "asset" in question.takes and said.asset is None:
        raise BadQuestion("asset_needed", f"{question.name} is about one vehicle; say which", "asset")


def _range(time: Time, said: Parameters, now: datetime, longest_s: int) -> tuple[int, int]:
    """Whole steps; both ends must be such where they are said."""
    latest_ms = time.settled_ms(to_ms(now))
    start_ms, end_ms = (None if one is None else to_ms(one.astimezone(UTC)) for one in (said.start, said.end))
    for name, value in (("from", start_ms), ("to", end_ms)):
        if value is not None and (value < 0 or value % time.step_ms):
            raise BadQuestion("bad_range", f"'{name}' must lie on a whole {_step(time)} (UTC)", name)
    width_ms = time.width_ms or time.default_ms
    if end_ms is None:
        end_ms = latest_ms if start_ms is None or not time.width_ms else start_ms + width_ms
    if start_ms is None:
        start_ms = max(0, end_ms - width_ms)
    if start_ms >= end_ms:
        raise BadQuestion("bad_range", "'from' must be earlier than 'to'", "from")
    if time.width_ms and end_ms - start_ms != time.width_ms:
        raise BadQuestion("bad_range", f"this question is about {time.width_ms // 60_000} minutes; say one end", "from")
    if end_ms - start_ms > longest_s * 1_000:
        raise BadQuestion("range_too_long", f"at most {longest_s} s at once; ask for one part after the other", "from")
    if time is DAYS and end_ms > to_ms(now):
        raise BadQuestion("not_over", f"the day before {from_ms(end_ms).date()} is not over; ask up to today", "to")
    return start_ms, end_ms


def _step(time: Time) -> str:
    return {86_400_000: "day", 600_000: "ten minutes", 60_000: "minute"}[time.step_ms]


def _place(question: Question, cursor: str) -> tuple[int, int, list[str]]:
    name, start_ms, end_ms, text = read_cursor(CURSOR, cursor, [str, int, int, str])
    try:
        key = json.loads(str(text))
    except (ValueError, RecursionError):
        key = None
    times = isinstance(start_ms, int) and isinstance(end_ms, int) and 0 <= start_ms <= end_ms <= MOST_MS
    sound = isinstance(key, list) and len(key) == question.keys and all(isinstance(one, str) for one in key)
    if name != question.name or not sound or not times:
        raise BadQuestion(
            "bad_cursor", "not a cursor of this question; take it from its last answer's 'next'", "cursor"
        )
    return int(start_ms), int(end_ms), key


MOST_MS: Final = 253_402_300_799_000
"""End of the year 9999."""
