"""Training and comparing: the work of a device's day is done in Spark's tasks, only rows and scores come together here.

Training: the span is cut in time, its last part is held back. Healthy rows of the first part (known regime, all
channels, no excursion that anybody believed) are drawn in whole stretches by the seed and fitted; the model is then
tried on the part held back. Comparing tries two models on one and the same part.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

import anomaly
from anomaly.deployment import FOREVER, Deployment
from anomaly.models import fitting
from anomaly.models.file import Model, Training
from anomaly.models.recipe import Injected, Recipe
from anomaly.models.rows import Shape, healthy, matrix, rows_of, within
from anomaly.models.trial import Score, Tried, joined, try_out
from anomaly.types import Floats
from contracts.errors import Fatal
from stream_jobs.models.reading import Archive, Spans, Wanted, input_sha256
from stream_jobs.models.reading import joined as readings_of_day

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HELD_BACK: Final = 0.3
"""Share of the span, its end, that no model is trained on."""
MOST_ROWS: Final = 200_000
"""Rows of one training, all devices together."""
MOST_DAYS: Final = 2_000
"""Device-days that rows are drawn from, so that each gives a hundred rows or more."""
MARGIN_MS: Final = 600_000
"""Around an excursion so much is left out."""
NO_SPANS: Final = np.zeros((0, 2), np.int64)
log = logging.getLogger(__name__)


class NothingToTrain(Fatal):
    """The archive holds too little of a kind of asset; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to train. Times are event times in milliseconds; None: all that the archive holds."""

    recipe: Recipe
    seed: int
    wait_ms: int
    from_ms: int | None = None
    until_ms: int | None = None
    held_back: float = HELD_BACK


@dataclass(frozen=True, slots=True)
class Ground:
    """What is known of the fleet: when which devices were bound to assets of a kind, and when they were not well."""

    bound: Spans
    sick: Spans


def ground(bound: Iterable[tuple[int, int | None, int | None]], sick: Iterable[tuple[int, int, int]]) -> Ground:
    """From the registry's rows; an open end is the end of time."""
    held: dict[int, list[tuple[int, int]]] = {}
    for device, begin, end in bound:
        held.setdefault(device, []).append((begin or 0, FOREVER if end is None else end))
    ill: dict[int, list[tuple[int, int]]] = {}
    for device, begin, end in sick:
        if device in held:
            ill.setdefault(device, []).append((begin - MARGIN_MS, end + MARGIN_MS))
    return Ground(*({key: np.array(spans, np.int64) for key, spans in one.items()} for one in (held, ill)))


@dataclass(frozen=True, slots=True)
class Draw:
    """What a task does with a device's day for training: healthy rows, drawn by the seed."""

    shape: Shape
    wait_ms: int
    until_ms: int
    sick: Spans
    quota: int
    seed: int

    def __call__(self, key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        device, day = int(key[0]), int(key[1])
        readings = rows_of(self.shape, readings_of_day(frame), self.wait_ms)
        readings = healthy(within(readings, 0, self.until_ms, self.sick.get(device, NO_SPANS)))
        chosen = fitting.choose(readings, self.quota, (self.seed, device, day))
        values = np.ascontiguousarray(readings.values[chosen])
        return pd.DataFrame({"device": [device], "day": [day], "n": [len(values)], "rows": [values.tobytes()]})


@dataclass(frozen=True, slots=True)
class Try:
    """What a task does with a device's day of held-back readings: each model in turn."""

    models: tuple[tuple[Shape, Deployment, tuple[Injected, ...]], ...]
    wait_ms: int
    from_ms: int
    sick: Spans

    def __call__(self, key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        device, day = int(key[0]), int(key[1])
        samples = readings_of_day(frame)
        told = []
        for number, (shape, deployment, faults) in enumerate(self.models):
            readings = within(
                rows_of(shape, samples, self.wait_ms), self.from_ms, FOREVER, self.sick.get(device, NO_SPANS)
            )
            tried = try_out(deployment, faults, readings)
            delays = [np.nan if delay is None else delay for delay in tried.delays_s]
            told.append((device, day, number, tried.hours, tried.false_alarms, delays))
        return pd.DataFrame(told, columns=["device", "day", "number", "hours", "alarms", "delays"])


@dataclass(frozen=True, slots=True)
class Workshop:
    """Spark and the archive. ``survey`` gives the files from a moment on."""

    session: SparkSession
    survey: Callable[[int], Archive]

    def train(self, asked: Asked, ground: Ground) -> Model:
        """Raises NothingToTrain, BadParameters."""
        recipe = asked.recipe
        shape = Shape(recipe.signals, recipe.channels, recipe.call.awaits, recipe.call.hold_ms, recipe.call.regime)
        archive = self.survey(asked.from_ms or 0)
        wanted = Wanted(recipe.signals, ground.bound, asked.from_ms or 0, asked.until_ms or FOREVER)
        if not archive.files or not ground.bound:
            raise NothingToTrain(f"the archive holds nothing of any {recipe.kind}; let it run, or ask for another span")
        blocks = archive.blocks(self.session, wanted).persist()
        try:
            days = _days(blocks)
            if not len(days):
                raise NothingToTrain(f"no {recipe.kind} in the archive measured the signals of {recipe.name}")
            from_ms = asked.from_ms or int(days["first_ms"].min())
            until_ms = asked.until_ms or int(days["last_ms"].max()) + 1
            split_ms = until_ms - int((until_ms - from_ms) * asked.held_back)
            rows = self._draw(blocks, days, shape, asked, split_ms, ground.sick)
            detector, inputs = fitting.fit(recipe, rows)
            count = sum(map(len, rows.values()))
            log.info("event=model_fitted recipe=%s devices=%d rows=%d", recipe.name, len(rows), count)
            training = Training(
                from_ms, split_ms, until_ms, len(rows), int(days["records"].sum()), int(days["readings"].sum()),
                count, asked.seed, asked.wait_ms, code_version(),
                input_sha256(archive, wanted, ground.sick),
            )  # fmt: skip
            blank = Model(
                recipe.name, recipe.kind, recipe.signals, detector, recipe.call, inputs, recipe.faults, training,
                Score(0.0, 0, ()),
            )  # fmt: skip
            (score,) = self._score(blocks, [blank], asked.wait_ms, split_ms, ground.sick)
        finally:
            blocks.unpersist()
        return Model(
            recipe.name, recipe.kind, recipe.signals, detector, recipe.call, inputs, recipe.faults, training, score
        )  # fmt: skip

    def compare(self, models: Sequence[Model], ground: Ground, from_ms: int, until_ms: int) -> list[Score]:
        """Models on the same readings: event times from ``from_ms`` on and before ``until_ms``."""
        signals = tuple(sorted({signal for model in models for signal in model.signals}))
        archive = self.survey(from_ms)
        if not archive.files or not ground.bound:
            raise NothingToTrain("the archive holds nothing of that span; nothing was compared")
        wanted = Wanted(signals, ground.bound, from_ms, until_ms)
        blocks = archive.blocks(self.session, wanted)
        return self._score(blocks, models, models[0].training.wait_ms, from_ms, ground.sick)

    def _draw(
        self, blocks: DataFrame, days: pd.DataFrame, shape: Shape, asked: Asked, split_ms: int, sick: Spans
    ) -> dict[int, Floats]:
        """Healthy rows by device, in order of time."""
        early = days[days["first_ms"] < split_ms].sort_values(["device", "day"])
        keys = early[["device", "day"]].to_numpy()
        if len(keys) > MOST_DAYS:
            drawn = np.random.default_rng(asked.seed).permutation(len(keys))[:MOST_DAYS]
            keys = keys[np.sort(drawn)]
            chosen = self.session.createDataFrame(pd.DataFrame(keys, columns=["device", "day"]))
            blocks = blocks.join(chosen, ["device", "day"], "left_semi")
        quota = max(1, MOST_ROWS // max(1, len(keys)))
        work = Draw(shape, asked.wait_ms, split_ms, sick, quota, asked.seed)
        drawn_rows = _by_day(blocks, work, "device int, day int, n long, rows binary")
        found: dict[int, list[Floats]] = {}
        for row in sorted(drawn_rows.collect(), key=lambda one: (one["device"], one["day"])):
            if row["n"]:
                found.setdefault(row["device"], []).append(matrix(bytes(row["rows"]), shape.channels))
        return {device: np.concatenate(parts) for device, parts in found.items()}

    def _score(
        self, blocks: DataFrame, models: Sequence[Model], wait_ms: int, from_ms: int, sick: Spans
    ) -> list[Score]:
        late = blocks.where(blocks["last_ms"] >= from_ms)
        work = Try(tuple((one.shape, one.deployment(), one.faults) for one in models), wait_ms, from_ms, sick)
        ddl = "device int, day int, number int, hours double, alarms long, delays array<double>"
        rows = _by_day(late, work, ddl).collect()
        return [joined(model.faults, _parts(rows, number)) for number, model in enumerate(models)]


def _by_day(blocks: DataFrame, work: Draw | Try, ddl: str) -> DataFrame:
    """One call a device and day; a function, since Spark miscounts the arguments of an object with ``__call__``."""
    return blocks.groupBy("device", "day").applyInPandas(lambda key, frame: work(key, frame), ddl)


def _days(blocks: DataFrame) -> pd.DataFrame:
    """What there is of each device and day."""
    from pyspark.sql import functions as F  # Spark is slow to import

    sums = [F.sum(name).alias(name) for name in ("records", "readings")]
    ends = [F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms")]
    return blocks.groupBy("device", "day").agg(*sums, *ends).toPandas()


def _parts(rows: Sequence[Any], number: int) -> list[Tried]:
    mine = sorted((row for row in rows if row["number"] == number), key=lambda one: (one["device"], one["day"]))
    return [
        Tried(row["hours"], int(row["alarms"]), tuple(None if np.isnan(one) else float(one) for one in row["delays"]))
        for row in mine
    ]


@cache
def code_version() -> str:
    """A hash of the code that turns readings into parameters and answers."""
    root = Path(anomaly.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return f"anomaly-{digest.hexdigest()[:16]}"


def overlap(models: Sequence[Model], since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
    """The span that none of the models was trained on, unless another is asked for. Raises NothingToTrain."""
    begin = max(one.training.split_ms for one in models) if since_ms is None else since_ms
    end = max(one.training.until_ms for one in models) if until_ms is None else until_ms
    if begin >= end:
        raise NothingToTrain("nothing was held back from both models; say --since and --until")
    return begin, end


def told(score: Score) -> Mapping[str, Any]:
    """A score for people and for the registry."""
    return {
        "device_hours": round(score.hours, 3), "false_alarms": score.false_alarms,
        "false_alarms_per_device_month": score.per_device_month,
        "upper_95_per_device_month": score.per_device_month_upper,
        "faults": {
            one.name: {"tried": one.tried, "found": one.found, "median_delay_s": one.median_delay_s}
            for one in score.faults
        },
    }  # fmt: skip
