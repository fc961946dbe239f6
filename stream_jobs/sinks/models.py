"""The registry's rows: candidates, promotions and rollbacks, each with its event in one transaction.

The schedule (which model judges which event times) is the list of changes, which is only ever appended to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from anomaly.models.file import Model
from anomaly.models.schedule import LEAD_MS, Change, before
from contracts.errors import Fatal
from contracts.model_event import PROMOTED, ROLLED_BACK, ModelEvent, encode_model_event
from stream_jobs.sinks.connection import Connection, repeated
from stream_jobs.sinks.writers import at

ADD: Final = """
INSERT INTO model_rows (model, name, asset_kind, detector, signals, parent, trained_from, held_back_from,
    held_back_until, devices, records, readings, training_rows, seed, code, input_sha256, score, size_bytes, made_by)
SELECT %s, %s, %s, %s, %s, (SELECT model FROM model_rows WHERE name = %s AND state = 'live'), %s, %s,
    %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
ON CONFLICT DO NOTHING"""
LIST: Final = "SELECT * FROM models WHERE %(name)s::text IS NULL OR name = %(name)s ORDER BY name, made_at DESC, model"
DRIFTING: Final = """
SELECT model, count(*) FROM finding_rows WHERE model <> '' AND detector = 'input_drift' AND closed_at IS NULL
GROUP BY model"""
FOUND: Final = """
SELECT model, count(*) FROM finding_rows WHERE model <> '' AND detector <> 'input_drift' GROUP BY model"""
ONE: Final = "SELECT * FROM models WHERE starts_with(model, %s) ORDER BY model LIMIT 2"
CHANGES: Final = """
SELECT change_id, name, model, replaced, (extract(epoch FROM effective_at) * 1000)::bigint, action, anew
FROM model_changes ORDER BY change_id"""
HISTORY: Final = "SELECT * FROM model_changes WHERE name = %s ORDER BY change_id"
NUMBER: Final = "SELECT coalesce(max(change_id), 0) FROM model_changes"
LOCK: Final = "SELECT model, state, asset_kind FROM model_rows WHERE name = %s ORDER BY model FOR UPDATE"
MOVE: Final = "UPDATE model_rows SET state = %s, changed_at = now() WHERE model = %s"
NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
NOTE: Final = """
INSERT INTO model_changes (name, action, model, replaced, effective_at, anew, comparison, anyway, asked_by)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING change_id"""
TELL: Final = "INSERT INTO outbox (topic, kafka_key, kafka_value) VALUES ('events', %s, %s)"
BINDINGS: Final = """
SELECT b.device_key, (extract(epoch FROM lower(b.valid)) * 1000)::bigint,
       (extract(epoch FROM upper(b.valid)) * 1000)::bigint
FROM bindings b JOIN assets a USING (asset_id) WHERE a.kind = %s ORDER BY b.device_key, lower(b.valid) NULLS FIRST"""
SICK: Final = """
SELECT f.device_key, (extract(epoch FROM f.opened_at) * 1000)::bigint,
       (extract(epoch FROM coalesce(f.closed_at, f.last_at)) * 1000)::bigint
FROM finding_rows f LEFT JOIN alert_labels l USING (finding_id)
WHERE f.severity >= 2 AND f.detector <> 'input_drift' AND l.resolution IS DISTINCT FROM 'false'
ORDER BY f.device_key, f.opened_at, f.finding_id"""
Result = TypeVar("Result")
Row = dict[str, Any]


class ModelRefused(Fatal):
    """A promotion or rollback that would not be right; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """``expected``: the live model that it was compared with. ``since_ms``: event time from which it holds; None: from
    ``LEAD_MS`` ahead on, which no detector has judged yet."""

    model: str
    expected: str | None
    comparison: Mapping[str, Any]
    asked_by: str
    anyway: str | None = None
    since_ms: int | None = None


class ModelStore:
    """Needs the role of the sink. Every method raises StoreBusy when the database stays away."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def add(self, name: str, model: Model, size_bytes: int, made_by: str) -> bool:
        """Make a file's model known as a candidate; False when it was known."""
        training = model.training
        values = (
            name, model.recipe, model.kind, model.detector.name, list(model.signals), model.recipe,
            at(training.from_ms), at(training.split_ms), at(training.until_ms), training.devices, training.records,
            training.readings, training.rows, training.seed, training.code, training.input_sha256,
            Jsonb(asdict(model.score)), size_bytes, made_by,
        )  # fmt: skip
        return self._run(lambda connection: connection.execute(ADD, values).rowcount == 1)

    def changes(self) -> tuple[Change, ...]:
        """Everything that was promoted and rolled back, in order."""
        rows = self._run(lambda connection: connection.execute(CHANGES).fetchall())
        return tuple(map(_change_of, rows))

    def number(self) -> int:
        """Of the newest change; 0: none."""
        row = self._run(lambda connection: connection.execute(NUMBER).fetchone())
        return int(row[0]) if row else 0

    def rows(self, name: str | None = None) -> list[Row]:
        """The view ``models``, with how many devices drift and how many findings each model has."""

        def read(connection: Connection) -> list[Row]:
            drifting: dict[str, int] = dict(connection.execute(DRIFTING).fetchall())
            found: dict[str, int] = dict(connection.execute(FOUND).fetchall())
            with connection.cursor(row_factory=dict_row) as cursor:
                rows = cursor.execute(LIST, {"name": name}).fetchall()
            return [
                {**row, "drifting": drifting.get(row["model"], 0), "findings": found.get(row["model"], 0)}
                for row in rows
            ]

        return self._run(read)

    def one(self, prefix: str) -> Row:
        """By the first digits of its name. Raises ModelRefused when none or several begin so."""

        def read(connection: Connection) -> list[Row]:
            with connection.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(ONE, (prefix,)).fetchall()

        rows = self._run(read)
        if len(rows) != 1 or not prefix:
            many = "several models begin" if rows else "no model begins"
            raise ModelRefused(f"{many} with {prefix!r}; `fleetstream models list` names them")
        return rows[0]

    def live(self, name: str) -> str | None:
        """The live model of a recipe."""
        return next((row["model"] for row in self.rows(name) if row["state"] == "live"), None)

    def history(self, name: str) -> list[Row]:
        """Promotions and rollbacks of a recipe, in order."""

        def read(connection: Connection) -> list[Row]:
            with connection.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(HISTORY, (name,)).fetchall()

        return self._run(read)

    def devices(self, kind: str) -> list[tuple[int, int | None, int | None]]:
        """(device key, from, until) of everything that measured assets of a kind, in milliseconds."""
        return self._run(lambda connection: connection.execute(BINDINGS, (kind,)).fetchall())

    def sick(self) -> list[tuple[int, int, int]]:
        """(device key, from, until) of excursions that nobody called false, in milliseconds."""
        return self._run(lambda connection: connection.execute(SICK).fetchall())

    def promote(self, asked: Promotion) -> ModelEvent:
        """Row, audit and event, one transaction. Raises ModelRefused."""
        row = self.one(asked.model)
        name = str(row["name"])

        def work(connection: Connection) -> ModelEvent:
            with connection.transaction(), connection.cursor() as cursor:
                states = _lock(cursor, name)
                live = next((model for model, (state, _) in states.items() if state == "live"), None)
                if live is not None and live == row["model"]:
                    raise ModelRefused(f"{live[:16]} is live already; nothing was changed")
                if live != asked.expected:
                    raise ModelRefused(f"another model of {name} was promoted meanwhile; compare again")
                return _change(cursor, name, row["asset_kind"], row["model"], live, PROMOTED, asked)

        return self._run(work)

    def rollback(self, name: str, asked_by: str) -> ModelEvent:
        """What was live before is live again, or nothing. Raises ModelRefused when nothing was promoted."""

        def work(connection: Connection) -> ModelEvent:
            with connection.transaction(), connection.cursor() as cursor:
                states = _lock(cursor, name)
                live = next((model for model, (state, _) in states.items() if state == "live"), None)
                rows = cursor.execute(CHANGES).fetchall()
                mine = [_change_of(row) for row in rows if row[1] == name]
                if live is None:
                    raise ModelRefused(f"no model of {name} is live, so there is nothing to take back")
                asked = Promotion("", live, {}, asked_by)
                return _change(cursor, name, states[live][1], before(mine), live, ROLLED_BACK, asked)

        return self._run(work)

    def _run(self, work: Callable[[Connection], Result]) -> Result:
        result, _ = repeated(self._dsn, work)
        return result


def _change_of(row: tuple[Any, ...]) -> Change:
    change_id, name, model, replaced, effective_ms, action, anew = row
    return Change(change_id, name, model, replaced, effective_ms, action == ROLLED_BACK, anew)


def _lock(cursor: psycopg.Cursor[tuple[Any, ...]], name: str) -> dict[str, tuple[str, str]]:
    """Models of a recipe with state and kind; held until the transaction ends."""
    return {model: (state, kind) for model, state, kind in cursor.execute(LOCK, (name,)).fetchall()}


def _change(
    cursor: psycopg.Cursor[tuple[Any, ...]], name: str, kind: str, model: str | None, replaced: str | None, action: str,
    asked: Promotion,
) -> ModelEvent:  # fmt: skip
    row = cursor.execute(NOW).fetchone()
    now_ms = int(row[0]) if row else 0
    earlier = max((one[4] for one in cursor.execute(CHANGES).fetchall() if one[1] == name), default=-1)
    effective_ms = max(now_ms + LEAD_MS, earlier + 1) if asked.since_ms is None else asked.since_ms
    if asked.since_ms is not None and not earlier < effective_ms <= now_ms + LEAD_MS:
        raise ModelRefused(
            f"a change of {name} must hold from after the one before it and no later than one made now would; "
            "nothing was changed: ask for another --since, or for none"
        )
    if replaced is not None:
        cursor.execute(MOVE, ("retired", replaced))
    if model is not None:
        cursor.execute(MOVE, ("live", model))
    anew = asked.since_ms is not None
    comparison = Jsonb(dict(asked.comparison)) if asked.comparison else None
    values = (name, action, model, replaced, at(effective_ms), anew, comparison, asked.anyway, asked.asked_by)
    made = cursor.execute(NOTE, values).fetchone()
    event = ModelEvent(
        int(made[0]) if made else 0, action, name, kind, model, replaced, effective_ms, now_ms, asked.asked_by,
        asked.anyway,
    )  # fmt: skip
    cursor.execute(TELL, (name, encode_model_event(event)))
    return event
