"""The one way to read evidence: the answer is written and committed first, then the reading transaction names it.

The store would show nothing to a transaction that names no such entry, so no route, and no command, can go around it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import unquote

from api.errors import Forbidden
from api.queries.edr import enter, name_entry
from api.queries.pool import Connection, Store
from contracts.edr.custody import MAX_TEXT, Decision, Request, decide

UNREADABLE = "unreadable_request"


@dataclass(frozen=True, slots=True)
class Reading:
    """A connection that may read what was asked for, and the number of the custody entry that says so."""

    connection: Connection
    entry_no: int


async def logged(store: Store, tenant_id: int, asked: Request, unreadable: bool = False) -> tuple[Decision, int]:
    """Write a wish to read and its answer; the answer and its number. Raises StoreUnavailable: then nothing is read.

    ``unreadable``: the request cannot be understood, so the answer is no whoever asks.
    """
    decision = Decision(False, UNREADABLE) if unreadable else decide(asked)
    async with store.transaction(tenant_id, writable=True) as connection:
        return decision, await enter(connection, asked, decision)


@asynccontextmanager
async def reading(store: Store, tenant_id: int, asked: Request) -> AsyncIterator[Reading]:
    """Raises Forbidden with the reason, after it was logged; StoreUnavailable when it cannot be logged."""
    decision, entry_no = await logged(store, tenant_id, asked)
    if not decision.allowed:
        raise Forbidden(decision.reason, f"{decision.detail}; the request is entry {entry_no} of the custody log")
    async with store.transaction(tenant_id) as connection:
        await name_entry(connection, entry_no)
        yield Reading(connection, entry_no)


def plain(text: str) -> str:
    """A header's text: percent-encoded UTF-8 is decoded, what cannot be printed becomes a question mark.

    One character more than allowed is kept, so that the decision can say that it is too long.
    """
    return "".join(one if one.isprintable() else "?" for one in unquote(text, errors="replace"))[: MAX_TEXT + 1]
