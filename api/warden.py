"""The warden makes alerts of findings: opens, joins, amends, retracts, groups, escalates and wakes them.

Beside the relay and the clerk, one at a time per stack. What is decided is pure (``anomaly.alerts``); what is done is
one transaction per batch, in which the store's own trigger writes audit, message and deliveries of each step. A finding
that was noted again while it was taken is taken again: the queue's row comes with the finding's own transaction.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from anomaly.alerts.gathering import Facts, Ground, Hysteresis, Place, Standing, contradicts, ground_of, place, step_for
from anomaly.alerts.gravity import Criticality, Record, Stake, grade
from anomaly.alerts.life import CLOSED, WAITING
from anomaly.alerts.storm import Fresh, StormRule, storm_of
from anomaly.alerts.waiting import escalates_at
from api.metrics import Metrics
from api.queries import warden as sql
from api.queries.warden import HeldAlert, Waiting, WardenStore, Work
from api.rounds import work_alone
from contracts.alert import AlertState, Resolution, StepKind
from contracts.finding import Severity

BATCH: Final = 200
NEAR_MOST: Final = 500
"""Alerts looked at for one storm; a storm that large was recognised long before."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """The rules of ``anomaly.alerts`` with their numbers."""

    hysteresis: Hysteresis = field(default_factory=Hysteresis)
    storm: StormRule = field(default_factory=StormRule)


@dataclass
class Warden:
    """Runs until cancelled; every fault is retried, since every finding waits in the store."""

    store: WardenStore
    now_ms: Callable[[], int]
    metrics: Metrics
    policy: AlertPolicy = field(default_factory=AlertPolicy)
    poll_s: float = 0.5

    async def run(self) -> None:
        await work_alone(self.store, self.round, self.poll_s)

    async def round(self) -> bool:
        """Findings, then deadlines; True when more may wait."""
        now_ms = self.now_ms()
        async with self.store.transaction() as work:
            due = await work.due(BATCH)
            refused = 0
            for finding in due:
                refused += not await work.attempt(self._take(work, finding, now_ms), finding.finding_id)
            await work.taken([finding.finding_id for finding in due])
        self.metrics.findings_taken.inc(len(due) - refused)
        self.metrics.findings_refused.inc(refused)
        late = await self._deadlines(now_ms)
        return len(due) == BATCH or late == BATCH

    async def _take(self, work: Work, finding: Waiting, now_ms: int) -> None:
        if finding.tenant_id is None or not finding.holds:
            if finding.alert_id is not None and await work.write(sql.UNLINK, (finding.finding_id,)):
                await self._reground(work, finding.alert_id, now_ms, corrected=True, why=finding.why)
            return
        if finding.alert_id is not None:
            await self._again(work, finding, finding.alert_id, now_ms)
            return
        newest = await work.newest(finding.tenant_id, finding.subject)
        alert = (await work.hold([newest])).get(newest) if newest else None
        where = place(finding.since_ms or 0, _standing(alert), self.policy.hysteresis)
        if alert is None or where is Place.OPEN:
            await self._open(work, finding, now_ms)
            return
        await work.write(sql.LINK, {**_values(finding), "alert_id": alert.alert_id})
        await self._reground(work, alert.alert_id, now_ms, corrected=False, reopen=where is Place.REOPEN)

    async def _again(self, work: Work, finding: Waiting, alert_id: str, now_ms: int) -> None:
        """A finding that an alert has already says something else now."""
        await work.hold([alert_id])
        before = {row["finding_id"]: row for row in await work.rows(sql.GROUND, (alert_id,))}[finding.finding_id]
        amended = contradicts(_facts(before), _told(finding))
        await work.write(sql.RELINK, {**_values(finding), "amended": int(amended)})
        await self._reground(work, alert_id, now_ms, corrected=amended, why=finding.why)

    async def _open(self, work: Work, finding: Waiting, now_ms: int) -> None:
        told, tenant_id = Severity(finding.severity or 1), finding.tenant_id or 0
        sureness = await _sureness(work, tenant_id, finding.detector or "")
        severity = grade(told, await _stake(work, finding.asset_id), sureness)
        alert_id = "a-" + hashlib.sha256(finding.finding_id.encode()).hexdigest()[:16]
        values = {
            **_values(finding), "alert_id": alert_id, "subject": finding.subject, "severity": int(severity),
            "told": int(told), "sureness": sureness, "running": not finding.closed, "now": now_ms,
            "escalate_ms": escalates_at(AlertState.NEW, severity, 0, now_ms),
        }  # fmt: skip
        await work.write(sql.OPEN, values)
        await work.write(sql.LINK, {**_values(finding), "alert_id": alert_id})
        self.metrics.alert_steps.labels(StepKind.OPENED.value).inc()
        await self._group(work, alert_id, now_ms)

    async def _group(self, work: Work, alert_id: str, now_ms: int) -> None:
        """Recognise a storm that this new alert belongs to."""
        new = (await work.hold([alert_id]))[alert_id]
        asset = f"device:{new.device_key}" if new.asset_id is None else f"asset:{new.asset_id}"
        fresh = Fresh(alert_id, asset, new.cause, new.since_ms, Severity(new.severity))
        values = {
            "tenant": new.tenant_id, "alert_id": alert_id, "since_ms": new.since_ms, "cause": new.cause,
            "asset_id": new.asset_id, "device_key": new.device_key, "window_ms": self.policy.storm.window_ms,
            "limit": NEAR_MOST,
        }  # fmt: skip
        near = [Fresh(**{**row, "severity": Severity(row["severity"])}) for row in await work.rows(sql.NEAR, values)]
        storm = storm_of(fresh, near, self.policy.storm)
        if storm is None:
            return
        held = await work.hold([*storm.members, storm.root])
        for member in storm.members:
            # it was read without a lock: somebody may have taken notice meanwhile
            if held[member].root_id is None and AlertState(held[member].state) in WAITING:
                await self._regroup(work, member, storm.root, now_ms)

    async def _regroup(self, work: Work, alert_id: str, root: str | None, now_ms: int) -> None:
        kind = StepKind.UNGROUPED if root is None else StepKind.GROUPED
        note = "its root does not stand any more" if root is None else f"one of many that began with {root}"
        values = {"alert_id": alert_id, "root": root, "kind": kind, "note": note, "now": now_ms}
        await work.write(sql.GROUP, values)
        if root is not None:
            await work.write(sql.SILENCE, (alert_id,))
        self.metrics.alert_steps.labels(kind.value).inc()

    async def _reground(
        self, work: Work, alert_id: str, now_ms: int, *, corrected: bool, reopen: bool = False, why: str | None = None
    ) -> None:
        """Take all findings of an alert together again, and make the step that follows."""
        alert = (await work.hold([alert_id]))[alert_id]
        rows = await work.rows(sql.GROUND, (alert_id,))
        ground = ground_of(_facts(row) for row in rows)
        await work.write(sql.REGROUND, _grounded(alert, rows, ground))
        kind = step_for(AlertState(alert.state), Severity(alert.told_severity), ground, corrected)
        if reopen:
            kind = StepKind.REOPENED
        if kind is StepKind.REOPENED and await self._hand_over(work, alert, now_ms):
            return
        if kind is not None:
            await self._step(work, alert, kind, ground, now_ms, _note(kind, ground, why))

    async def _hand_over(self, work: Work, alert: HeldAlert, now_ms: int) -> bool:
        """When a person opened another alert of the same subject again meanwhile, the findings go to that one."""
        other = await work.newest(alert.tenant_id, alert.subject)
        if other is None or other == alert.alert_id:
            return False
        if AlertState((await work.hold([other]))[other].state) in CLOSED:
            return False
        await work.write(sql.HAND_OVER, {"to": other, "alert_id": alert.alert_id})
        await self._reground(work, other, now_ms, corrected=False)
        return True

    async def _step(
        self, work: Work, alert: HeldAlert, kind: StepKind, ground: Ground | None, now_ms: int, note: str
    ) -> None:
        self.metrics.alert_steps.labels(kind.value).inc()
        sureness = await _sureness(work, alert.tenant_id, alert.detector)
        told = Severity(alert.told_severity) if ground is None else ground.severity
        severity = grade(told, await _stake(work, alert.asset_id), sureness)
        values: dict[str, Any] = {
            "alert_id": alert.alert_id, "kind": kind, "note": note, "now": now_ms, "sureness": sureness,
            "severity": int(severity),
        }  # fmt: skip
        if kind in (StepKind.AMENDED, StepKind.WORSENED):
            await work.write(sql.CORRECT, values)
            return
        state = AlertState.RETRACTED if kind is StepKind.RETRACTED else AlertState.REOPENED
        values |= {
            "state": state, "resolution": None, "level": 0, "root_id": None, "assignee": None,
            "escalate_ms": escalates_at(state, severity, 0, now_ms),
            "resolved_ms": now_ms if state is AlertState.RETRACTED else None,
        }  # fmt: skip
        await work.write(sql.STEP, values)
        if state is AlertState.RETRACTED:
            for child in await work.held(sql.CHILDREN, (alert.alert_id,)):
                await self._regroup(work, child.alert_id, None, now_ms)

    async def _deadlines(self, now_ms: int) -> int:
        """Escalate what nobody took notice of, wake what was suppressed for a time; how many there were."""
        async with self.store.transaction() as work:
            late = await work.held(sql.LATE, {"now": now_ms, "limit": BATCH})
            for alert in late:
                await self._write_deadline(work, alert, StepKind.ESCALATED, now_ms)
            waking = await work.held(sql.WAKING, {"now": now_ms, "limit": BATCH})
            for alert in waking:
                await self._write_deadline(work, alert, StepKind.REOPENED, now_ms)
        return max(len(late), len(waking))

    async def _write_deadline(self, work: Work, alert: HeldAlert, kind: StepKind, now_ms: int) -> None:
        wakes = kind is StepKind.REOPENED
        state = AlertState.REOPENED if wakes else AlertState(alert.state)
        level, severity = (0 if wakes else alert.level + 1), Severity(alert.severity)
        values = {
            "alert_id": alert.alert_id, "state": state, "resolution": None, "severity": alert.severity,
            "sureness": await _sureness(work, alert.tenant_id, alert.detector), "level": level,
            "root_id": alert.root_id, "escalate_ms": escalates_at(state, severity, level, now_ms), "resolved_ms": None,
            "assignee": None if wakes else alert.assignee, "kind": kind, "now": now_ms,
            "note": "the time of its suppression is over" if wakes else f"nobody has acted on it; level {level}",
        }  # fmt: skip
        await work.write(sql.STEP, values)
        self.metrics.alert_steps.labels(kind.value).inc()
        if not wakes:
            log.warning("event=alert_escalated alert=%s level=%d severity=%d", alert.alert_id, level, alert.severity)


def _standing(alert: HeldAlert | None) -> Standing | None:
    if alert is None:
        return None
    resolution = None if alert.resolution is None else Resolution(alert.resolution)
    return Standing(AlertState(alert.state), resolution, alert.resolved_ms or 0)


def _facts(row: dict[str, Any]) -> Facts:
    severity = Severity(row["severity"])
    return Facts(severity, row["since_ms"], row["last_seen_ms"], row["closed"], row["lost"], row["holds"])


def _told(finding: Waiting) -> Facts:
    severity, lost = Severity(finding.severity or 1), bool(finding.lost)
    return Facts(severity, finding.since_ms or 0, finding.last_seen_ms or 0, finding.closed, lost)


def _values(finding: Waiting) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__slots__ if name not in ("alert_id", "retracted", "why")}


def _grounded(alert: HeldAlert, rows: list[dict[str, Any]], ground: Ground | None) -> dict[str, Any]:
    """What an alert's row says of its findings; without any that holds it keeps what it said of the last ones."""
    told = [row for row in rows if row["holds"]] or rows
    best = min(told, key=lambda row: (-row["severity"], row["since_ms"], row["finding_id"]))
    return {
        "alert_id": alert.alert_id, "told": max(row["severity"] for row in told), "detector": best["detector"],
        "finding_id": best["finding_id"], "since_ms": min(row["since_ms"] for row in told),
        "last_seen_ms": max(row["last_seen_ms"] for row in told), "running": ground is not None and ground.running,
        "findings": len(rows), "holding": 0 if ground is None else ground.holding,
        "revision": sum(row["amendments"] for row in rows),
    }  # fmt: skip


def _note(kind: StepKind, ground: Ground | None, why: str | None) -> str:
    """``why``: what judging late readings again said of the finding that changed."""
    because = f": {why}" if why else ""
    if kind is StepKind.AMENDED:
        return ("late data changed what it stands on" if ground else "late data took away what it stood on") + because
    return {
        StepKind.RETRACTED: f"none of its findings holds any more{because}", StepKind.REOPENED: "it has come back",
    }.get(kind, "")  # fmt: skip


async def _stake(work: Work, asset_id: int | None) -> Stake:
    rows = await work.rows(sql.STAKE, (asset_id,))
    if not rows:
        return Stake()
    return Stake(Criticality(rows[0]["criticality"]), rows[0]["downtime_cost_per_day"], rows[0]["visit_cost"])


async def _sureness(work: Work, tenant_id: int, detector: str) -> float:
    return Record(**(await work.rows(sql.RECORD, (tenant_id, detector)))[0]).sureness
