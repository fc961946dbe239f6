"""What is told of crash records on the ``events`` topic: JSON with ``v`` and ``kind``, key = device name.

``crash_notice``: something happened, where help may be needed. ``crash_record``: a record is stored.
``crash_record_refused``: something that claimed to be evidence is not believed; its bytes are kept aside.
``evidence_day``: the root of a log's day (key = tenant name), so that nobody who owns the store can rewrite the past.
Repeats are possible (the outbox delivers at least once). None of them says who or where.
"""

from __future__ import annotations

import json
from typing import Any, Final

from contracts.edr.ledger import DayRoot
from contracts.edr.wire import Notice

EVENT_FORMAT: Final = 1
NOTICE, RECORD, REFUSED, DAY = "crash_notice", "crash_record", "crash_record_refused", "evidence_day"


def notice_event(tenant: str, device: str, notice: Notice, received_ms: int) -> bytes:
    """A crash notice; ``speed_kmh`` None: no source. Times are Unix epoch milliseconds."""
    speed = None if notice.speed_dkmh is None else notice.speed_dkmh / 10
    return _event(
        NOTICE, tenant=tenant, device=device, event_id=notice.event_id, profile=notice.profile, source=notice.source,
        trigger=notice.trigger, event_number=notice.event_number, speed_kmh=speed, restraints=list(notice.restraints),
        received_ms=received_ms,
    )  # fmt: skip


def record_event(tenant: str, device: str, event_id: str, sha256: bytes, complete: bool, trust: str) -> bytes:
    """A record is stored; what it says is read through the custody log only."""
    return _event(
        RECORD, tenant=tenant, device=device, event_id=event_id, sha256=sha256.hex(), complete=complete, trust=trust
    )


def refused_event(tenant: str, device: str, reason: str, detail: str, bytes_sha256: bytes, received_ms: int) -> bytes:
    """The alarm for bytes kept aside."""
    return _event(
        REFUSED, tenant=tenant, device=device, reason=reason, detail=detail, bytes_sha256=bytes_sha256.hex(),
        received_ms=received_ms,
    )  # fmt: skip


def day_event(tenant: str, ledger: str, root: DayRoot) -> bytes:
    """The end of a day of a log."""
    return _event(
        DAY, tenant=tenant, ledger=ledger, day=root.day.isoformat(), first_no=root.first_no, last_no=root.last_no,
        previous_sha256=root.previous_sha256.hex(), sha256=root.sha256.hex(),
    )  # fmt: skip


def _event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"v": EVENT_FORMAT, "kind": kind, **fields}, separators=(",", ":")).encode()
