"""Dead letters: counted, listed, looked into, sent again. What was set aside keeps its bytes and its reason.

Counts are for everybody who reads the ledger; letters hold what devices measured, so they are for administrators.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response

from api.errors import BadQuestion, NotFound
from api.keys import Caller
from api.letters import Repair, open_letter
from api.queries.ledger import count_dead_letters
from api.queries.letters import LetterFilter, LetterId, list_letters, read_id, sent_again
from api.questions import make_cursor, read_cursor
from api.resubmit import Asked, obstacle, require_letter, resubmit
from api.routes.common import PREFIX, Cursor, EvidenceCaller
from api.services import Allow, Parts
from api.shapes_ledger import Aside
from api.shapes_letters import (
    LETTER_ID,
    DeadLetters,
    RepairRequest,
    Resubmission,
    Resubmitted,
    WholeLetter,
    letter_shape,
    shown,
)
from contracts.errors import Rejected

router = APIRouter(prefix=PREFIX, tags=["ledger"])
CURSOR = "letters"
ADMIN = frozenset({"admin"})

AdminCaller = Annotated[Caller, Depends(Allow(ADMIN))]
Letter = Annotated[str, Path(pattern="^[gs]-[0-9a-f]{32}-[0-9]{1,9}-[0-9]{1,18}$", examples=[LETTER_ID])]
KeptBy = Literal["gateway", "stream_job"]


@router.get("/dead-letters")
async def dead_letters(
    parts: Parts, caller: EvidenceCaller, reason: Annotated[str | None, Query(max_length=64)] = None,
    device: Annotated[str | None, Query(max_length=64)] = None, kept_by: KeptBy | None = None, cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> DeadLetters:  # fmt: skip
    """What was set aside: counts by reason for the gateway, and for administrators each letter."""
    chosen = LetterFilter(kept_by, reason, device, _before(cursor))
    async with parts.store.transaction(caller.tenant_id) as connection:
        counts = await count_dead_letters(connection)
        rows = await list_letters(connection, chosen, limit + 1) if caller.role in ADMIN else []
    page = rows[:limit]
    more = _cursor(page[-1]) if len(rows) > limit else None
    letters = [letter_shape(row) for row in page] if caller.role in ADMIN else None
    return DeadLetters(as_of=parts.now(), items=[Aside(**row) for row in counts], letters=letters, next=more)


@router.get("/dead-letters/{letter}")
async def one_letter(parts: Parts, caller: AdminCaller, letter: Letter) -> WholeLetter:
    """One letter: its bytes, what can be read of them, why it cannot be sent, what was sent."""
    name = _named(letter)
    async with parts.store.transaction(caller.tenant_id) as connection:
        row = await require_letter(connection, name)
        history = await sent_again(connection, name)
    opened = open_letter(bytes(row["bytes"]))
    bytes_hex = "" if row["sealed"] else bytes(row["bytes"]).hex()
    return WholeLetter(
        letter=letter_shape({**row, "sent_again": bool(history)}), bytes_hex=bytes_hex,
        packet=shown(opened), obstacle=obstacle(row, opened, parts.now()),
        resubmissions=[Resubmission(**one) for one in history],
    )  # fmt: skip


@router.post("/dead-letters/{letter}/resubmit", status_code=202)
async def send_one(
    parts: Parts, caller: AdminCaller, letter: Letter, response: Response, body: RepairRequest | None = None
) -> Resubmitted:
    """Send a letter into the log again; 202 when it is on its way, 200 when the store has it already."""
    wanted = body or RepairRequest()
    repair = Repair(wanted.shift_ms, wanted.take_over)
    asked = Asked(_named(letter), repair, f"key:{caller.key_id}", parts.now())
    try:
        async with parts.store.transaction(caller.tenant_id, writable=True) as connection:
            outcome = await resubmit(connection, asked)
    except NotFound:
        raise
    except Rejected as error:
        parameter = {"bad_shift": "shift_ms", "still_not_believed": "shift_ms", "tenant_mismatch": "take_over"}
        raise BadQuestion(error.reason, error.detail, parameter.get(error.reason, "letter")) from error
    parts.metrics.resubmitted.inc(outcome.sent)
    response.status_code = 202 if outcome.sent else 200
    return Resubmitted(sent=outcome.sent, resubmissions=[Resubmission(**one) for one in outcome.history])


def _cursor(row: dict[str, Any]) -> str:
    place = (row["received_at"].isoformat(), row["topic_id"].hex, row["kafka_partition"], row["kafka_offset"])
    return make_cursor(CURSOR, place)


def _before(cursor: str | None) -> tuple[datetime, str, int, int] | None:
    if not cursor:
        return None
    moment, topic_id, partition, offset = read_cursor(CURSOR, cursor, [str, str, int, int])
    try:
        if not re.fullmatch("[0-9a-f]{32}", str(topic_id)) or int(partition) >= 2**31:
            raise ValueError
        return datetime.fromisoformat(str(moment)), str(topic_id), int(partition), int(offset)
    except ValueError as error:
        raise BadQuestion("bad_cursor", "not a cursor of this resource", "cursor") from error


def _named(text: str) -> LetterId:
    try:
        return read_id(text)
    except Rejected as error:
        raise BadQuestion(error.reason, error.detail, "letter") from error
