"""Alerts as people and programs ask for them, and their moves; ``fleetstream alerts`` uses the same statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg.rows import DictRow

from anomaly.alerts.gravity import Record
from anomaly.alerts.life import CLOSED, OPEN, Held, Move, moved
from anomaly.alerts.waiting import escalates_at
from api.errors import Conflict
from api.queries.pool import Connection
from contracts.alert import AlertState, Resolution, StepKind
from contracts.finding import Severity

_COLUMNS: Final = (
    "alert_id, asset, device, cause, state, resolution, severity, assignee, since, last_seen_at, running, findings,"
    " detector, root, grouped, level, revision, opened_at, resolved_at, changed_at, changed_by, event_no,"
    " suppressed_until, escalate_at, told_severity, sureness, finding_id"
)
LIST: Final = f"""
SELECT {_COLUMNS} FROM alerts
WHERE (%(states)s::text[] IS NULL OR state = ANY(%(states)s)) AND (%(asset)s::text IS NULL OR asset = %(asset)s)
    AND (%(cause)s::text IS NULL OR cause = %(cause)s) AND (%(assignee)s::text IS NULL OR assignee = %(assignee)s)
    AND severity >= %(severity)s AND (%(grouped)s OR root IS NULL)
    AND (%(before)s::timestamptz IS NULL OR (opened_at, alert_id) < (%(before)s, %(before_id)s::text))
ORDER BY opened_at DESC, alert_id DESC LIMIT %(limit)s
"""
ONE: Final = f"SELECT {_COLUMNS} FROM alerts WHERE alert_id = %s"
EVENTS: Final = """
SELECT event_no, kind, at, by_whom, from_state, to_state, severity, resolution, assignee, root_id AS root, note
FROM alert_events WHERE alert_id = %s ORDER BY event_no
"""
FINDINGS: Final = """
SELECT f.finding_id, f.signal, f.deployment AS detector, f.severity, f.opened_at, f.last_at, f.closed_at, l.holds
FROM alert_findings l JOIN findings f USING (finding_id) WHERE l.alert_id = %s
ORDER BY f.severity DESC, f.opened_at, f.finding_id LIMIT 100
"""
CHILDREN: Final = "SELECT alert_id, cause, asset, state, severity FROM alerts WHERE root = %s ORDER BY since LIMIT 100"
PRECISION: Final = """
SELECT tenant, detector, month, alerts, confirmed, wrong, unclear, unresolved, precision, low, high FROM alert_precision
WHERE month >= %(since)s ORDER BY month DESC, tenant, detector LIMIT 1000
"""
RECORD: Final = """
SELECT count(DISTINCT alert_id) FILTER (WHERE resolution = 'true') AS confirmed,
       count(DISTINCT alert_id) FILTER (WHERE resolution = 'false') AS wrong,
       count(DISTINCT alert_id) FILTER (WHERE resolution = 'unclear') AS unclear
FROM alert_labels WHERE detector = %s
"""
LOCK: Final = """
SELECT alert_id, state, resolution, assignee, severity, event_no, subject, root_id FROM alert_rows
WHERE alert_id = %(alert_id)s OR root_id = %(alert_id)s ORDER BY alert_id FOR UPDATE
"""
RIVAL: Final = """
SELECT o.alert_id FROM alert_rows o JOIN alert_rows r ON r.subject = o.subject AND r.tenant_id = o.tenant_id
WHERE r.alert_id = %(alert_id)s AND o.alert_id <> r.alert_id AND o.state NOT IN ('resolved', 'retracted')
"""
MOVE: Final = """
UPDATE alert_rows SET state = %(state)s, resolution = %(resolution)s, assignee = %(assignee)s,
    suppressed_until = at_ms(%(until_ms)s), escalate_at = at_ms(%(escalate_ms)s),
    resolved_at = at_ms(%(resolved_ms)s), level = 0, event_no = event_no + 1, changed_at = at_ms(%(now_ms)s),
    changed_by = %(by)s, change_kind = %(kind)s, change_note = %(note)s
WHERE alert_id = %(alert_id)s
"""

WORK_ORDERS: Final = """
SELECT r.alert_id AS work_order, r.asset, r.device, r.cause, r.severity, r.state, r.assignee, r.since, r.last_seen_at,
       r.running, f.signal, f.unit, f.observed, f.expected_low, f.expected_high, r.detector, r.sureness, f.advice,
       coalesce((SELECT string_agg(e.note, ' | ' ORDER BY e.event_no) FROM alert_events e
                 WHERE e.alert_id = r.alert_id AND e.kind = 'moved' AND e.note <> ''), '') AS notes
FROM alerts r LEFT JOIN findings f USING (finding_id)
WHERE CASE WHEN %(alert_id)s::text IS NULL
      THEN r.state NOT IN ('resolved', 'retracted', 'suppressed') AND r.root IS NULL ELSE r.alert_id = %(alert_id)s END
ORDER BY r.severity DESC, r.opened_at, r.alert_id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which alerts are listed; None: any. ``before``: where the page begins, newest first."""

    states: tuple[AlertState, ...] | None = None
    asset: str | None = None
    cause: str | None = None
    assignee: str | None = None
    severity: int = 1
    grouped: bool = False
    before: tuple[datetime, str] | None = None
    limit: int = 100

    def parameters(self) -> dict[str, Any]:
        """For ``LIST``."""
        before, before_id = self.before or (None, None)
        return {
            "states": None if self.states is None else list(self.states), "asset": self.asset, "cause": self.cause,
            "assignee": self.assignee, "severity": self.severity, "grouped": self.grouped, "before": before,
            "before_id": before_id, "limit": self.limit,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A move that somebody asks for. ``event_no``: how the alert stood when it was decided; None: however it stands."""

    alert_id: str
    move: Move
    by: str
    event_no: int | None = None


def plan_move(
    rows: Sequence[Mapping[str, Any]], rivals: Sequence[str], asked: Asked, now_ms: int
) -> list[dict[str, Any]]:
    """Parameters of ``MOVE`` for an alert and, where the move is for all of a storm, for what is grouped under it.

    ``rows`` are ``LOCK``'s with the alert among them; empty result: it stands like that already. Raises Conflict and
    Rejected('not_allowed' or 'bad_move').
    """
    own = next(row for row in rows if row["alert_id"] == asked.alert_id)
    if asked.event_no is not None and asked.event_no != own["event_no"]:
        raise Conflict("changed_meanwhile", f"it is {own['state']} now, at step {own['event_no']}; look again")
    if rivals and own["state"] in CLOSED and asked.move.to_state is AlertState.REOPENED:
        raise Conflict("another_is_open", f"{rivals[0]} is open about the same cause; work on that one")
    steps = [_step(own, asked.move, asked.by, now_ms)]
    if asked.move.to_state in (AlertState.RESOLVED, AlertState.SUPPRESSED) and steps[0]:
        note = f"with {asked.alert_id}" + (f": {asked.move.note}" if asked.move.note else "")
        together = Move(asked.move.to_state, None, asked.move.resolution, asked.move.suppress_until_ms, note[:2_000])
        children = [row for row in rows if row["root_id"] == asked.alert_id and row["state"] in OPEN]
        steps += [_step(row, together, asked.by, now_ms) for row in children]
    return [step for step in steps if step is not None]


def _step(row: Mapping[str, Any], move: Move, by: str, now_ms: int) -> dict[str, Any] | None:
    resolution = None if row["resolution"] is None else Resolution(row["resolution"])
    after = moved(Held(AlertState(row["state"]), row["assignee"], resolution), move, now_ms)
    if after is None:
        return None
    grouped = row["root_id"] is not None
    escalate_ms = None if grouped else escalates_at(after.state, Severity(row["severity"]), 0, now_ms)
    return {
        "alert_id": row["alert_id"], "state": after.state, "resolution": after.resolution, "assignee": after.assignee,
        "until_ms": after.suppressed_until_ms, "escalate_ms": escalate_ms, "now_ms": now_ms, "by": by,
        "resolved_ms": now_ms if after.state is AlertState.RESOLVED else None, "kind": StepKind.MOVED,
        "note": move.note,
    }  # fmt: skip


async def list_alerts(connection: Connection, wanted: Wanted) -> list[DictRow]:
    return await (await connection.execute(LIST, wanted.parameters())).fetchall()


async def show_alert(connection: Connection, alert_id: str) -> DictRow | None:
    """One alert with its ``events``, ``items`` (findings) and ``children``."""
    row = await (await connection.execute(ONE, (alert_id,))).fetchone()
    if row is None:
        return None
    parts = {"events": EVENTS, "items": FINDINGS, "children": CHILDREN}
    for name, statement in parts.items():
        row[name] = await (await connection.execute(statement.encode(), (alert_id,))).fetchall()
    return row


async def move_alert(connection: Connection, asked: Asked, now_ms: int) -> bool | None:
    """Whether it moved; None: there is no such alert. Needs a writable transaction; raises as ``plan_move``."""
    rows = await (await connection.execute(LOCK, {"alert_id": asked.alert_id})).fetchall()
    if asked.alert_id not in {row["alert_id"] for row in rows}:
        return None
    rivals = await (await connection.execute(RIVAL, {"alert_id": asked.alert_id})).fetchall()
    steps = plan_move(rows, [row["alert_id"] for row in rivals], asked, now_ms)
    for step in steps:
        await connection.execute(MOVE, step)
    return bool(steps)


async def read_precision(connection: Connection, since: datetime) -> list[DictRow]:
    return await (await connection.execute(PRECISION, {"since": since})).fetchall()


async def read_record(connection: Connection, detector: str) -> Record:
    """How often a detector's alerts were right for this tenant."""
    row = await (await connection.execute(RECORD, (detector,))).fetchone()
    return Record(**row) if row else Record()


async def read_work_orders(connection: Connection, alert_id: str | None, limit: int) -> list[DictRow]:
    """Of one alert in whatever state, or of all that are open and stand for themselves, the gravest first."""
    return await (await connection.execute(WORK_ORDERS, {"alert_id": alert_id, "limit": limit})).fetchall()
