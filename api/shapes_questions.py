"""Fleet questions as they are described and answered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from api.fleet.base import Asked, Column, Found, Question, Row
from api.questions import from_ms, to_ms
from api.shapes import AT, Shape, example
from api.shapes_series import moment

COLUMN: dict[str, JsonValue] = {"name": "fuel_level", "unit": "percent", "text": "newest fuel level"}
LIMIT = {"default": 10.0, "unit": "percent", "text": "lower levels are told"}


class ColumnShape(Shape):
    """One column of an answer; ``unit`` is empty for names, times and counts."""

    model_config = example(**COLUMN)

    name: str
    unit: str
    text: str


class ThresholdShape(Shape):
    """A limit that the caller may change."""

    model_config = example(**LIMIT)

    default: float
    unit: str
    text: str


class QuestionShape(Shape):
    """A question: what it asks, what it means exactly, what the benchmark suite (TSBS, iot) computes under its name,
    and why that differs."""

    model_config = example(
        name="low-fuel", asks="Which vehicles are low on fuel?",
        semantics="Vehicles whose newest fuel level is below the threshold.",
        suite="low-fuel: newest diagnostics row with a fuel state below 0.1.", differs="The level is not cut.",
        source="latest values", parameters=["fleet", "max_age_s", "threshold"], step_s=None, width_s=None,
        default_s=None, threshold=LIMIT, columns=[COLUMN],
    )  # fmt: skip

    name: str
    asks: str
    semantics: str
    suite: str
    differs: str
    source: str = Field(description="what it is answered from")
    parameters: list[str] = Field(description="what it takes beside cursor and limit")
    step_s: int | None = Field(description="'from' and 'to' lie on whole steps; null: it is about now")
    width_s: int | None = Field(description="its range is exactly so long; null: as long as asked")
    default_s: int | None = Field(description="length of the range when none is asked")
    threshold: ThresholdShape | None
    columns: list[ColumnShape]


class Questions(Shape):
    """Every fleet question."""

    items: list[QuestionShape]


class Answer(BaseModel):
    """An answer: objects of the question's columns, sorted by the first of them. ``counted``: how many vehicles were
    asked about, and how many of them could not be judged and why. ``settled_to``: what lies behind it is still being
    counted, so the answer may lack some of it; late readings may correct the rest as ever."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [{
        "question": "low-fuel", "as_of": AT, "from": None, "to": None, "settled_to": None,
        "complete": True, "threshold": 10.0, "columns": [COLUMN],
        "items": [{"asset": "truck-17", "driver": "Rodney", "fuel_level": 8.4, "measured_at": AT, "age_s": 2.5}],
        "counted": {"vehicles": 1000, "no_value": 3, "too_old": 12}, "next": None,
    }]})  # fmt: skip

    question: str
    as_of: datetime
    start: datetime | None = Field(alias="from")
    end: datetime | None = Field(alias="to")
    settled_to: datetime | None = Field(description="UTC, not after 'to'; null: it is about now")
    complete: bool = Field(description="false: 'to' lies behind settled_to; ask again later for the rest")
    threshold: float | None
    columns: list[ColumnShape]
    items: list[dict[str, str | int | float | None]]
    counted: dict[str, int]
    next: str | None


def describe(question: Question) -> dict[str, Any]:
    words, time, threshold = question.words, question.time, question.threshold
    parameters = {*question.takes, *(("from", "to") if time.default_ms else ()), *(("threshold",) if threshold else ())}
    return {
        "name": question.name, "asks": words.asks, "semantics": words.semantics, "suite": words.suite,
        "differs": words.differs, "source": words.source, "parameters": sorted(parameters),
        "step_s": time.step_ms // 1_000 or None, "width_s": time.width_ms // 1_000 or None,
        "default_s": time.default_ms // 1_000 or None,
        "threshold": threshold and {
            "default": threshold.default, "unit": threshold.unit, "text": threshold.text,
        },
        "columns": columns(question.columns),
    }  # fmt: skip


def answered(question: Question, asked: Asked, found: Found, rows: Sequence[Row], more: str | None) -> dict[str, Any]:
    """An ``Answer`` as plain objects, which are written without being validated once more."""
    names = [column.name for column in question.columns]
    ranged = question.time.default_ms > 0
    settled_ms = min(asked.end_ms, question.time.settled_ms(to_ms(asked.now))) if ranged else asked.end_ms
    return {
        "question": question.name, "as_of": moment(asked.now),
        "from": moment(from_ms(asked.start_ms)) if ranged else None,
        "to": moment(from_ms(asked.end_ms)) if ranged else None,
        "settled_to": moment(from_ms(settled_ms)) if ranged else None, "complete": settled_ms == asked.end_ms,
        "threshold": asked.threshold if question.threshold else None, "columns": columns(question.columns),
        "items": [dict(zip(names, map(_plain, row), strict=True)) for row in rows], "counted": found.counted,
        "next": more,
    }  # fmt: skip


def columns(found: tuple[Column, ...]) -> list[dict[str, str]]:
    return [{"name": one.name, "unit": one.unit, "text": one.text} for one in found]


def _plain(cell: str | int | float | datetime | None) -> str | int | float | None:
    return moment(cell) if isinstance(cell, datetime) else cell
