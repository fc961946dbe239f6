"""What routes may use, put together by ``wiring``: nothing here is global."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request

from api.auth import Doorman
from api.evidence_signer import ExportSigner
from api.keys import Caller
from api.limits import Seats
from api.live import Hub
from api.metrics import Metrics
from api.queries.changes import Changes, changes_since, current_position
from api.queries.keys import KeyRow, find_key
from api.queries.pool import Store
from api.settings import ApiSettings


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one application."""

    settings: ApiSettings
    store: Store
    doorman: Doorman
    seats: Seats
    exports: Seats
    hub: Hub
    metrics: Metrics
    now: Callable[[], datetime]
    elapsed_s: Callable[[], float]
    relay_works: Callable[[], bool]
    signer: ExportSigner | None


@dataclass(frozen=True, slots=True)
class StoreWatcher:
    """``live.Watcher`` on the real store."""

    store: Store

    async def position(self, tenant_id: int) -> int:
        async with self.store.transaction(tenant_id) as connection:
            return await current_position(connection)

    async def since(self, tenant_id: int, position: int, limit: int) -> Changes:
        async with self.store.transaction(tenant_id) as connection:
            return await changes_since(connection, position, limit)


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """``auth.KeyFinder`` on the real store."""

    store: Store

    async def __call__(self, key_id: str) -> KeyRow | None:
        async with self.store.transaction(None) as connection:
            return await find_key(connection, key_id)


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


class Allow:
    """Dependency: a caller whose key has one of ``roles``."""

    def __init__(self, roles: frozenset[str]) -> None:
        self._roles = roles

    async def __call__(self, request: Request, parts: Annotated[Services, Depends(services)]) -> Caller:
        host = request.client.host if request.client else "?"
        return await parts.doorman.admit(request.headers.get("authorization"), host, self._roles)


Parts = Annotated[Services, Depends(services)]
