"""Who asks, and may they: keys from the Authorization header, checked against the store, remembered for seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from api.errors import Forbidden, StoreUnavailable, Unauthorised
from api.keys import ROLES, Caller, digest, matches, read_header
from api.limits import Buckets
from api.queries.keys import KeyRow

TELEMETRY = frozenset({"operator", "maintenance", "admin"})
"""Positions and driving are personal: insurers get them by consented exports only, auditors not at all."""
EVIDENCE = TELEMETRY | {"auditor"}
EVERYONE = frozenset(ROLES)

MOST_REMEMBERED = 1_000


class KeyFinder(Protocol):
    """Looks a key up by its id."""

    async def __call__(self, key_id: str) -> KeyRow | None: ...


@dataclass
class Doorman:
    """Checks keys. A revoked key works for at most ``remember_s`` longer."""

    find: KeyFinder
    requests: Buckets
    failures: Buckets
    clock_s: Callable[[], float]
    now: Callable[[], datetime]
    remember_s: float
    _known: OrderedDict[bytes, tuple[Caller, float]] = field(default_factory=OrderedDict)

    async def admit(self, header: str | None, host: str, roles: frozenset[str]) -> Caller:
        """Raises Unauthorised, Forbidden, TooMany, StoreUnavailable."""
        try:
            caller = await self.identify(header)
        except Unauthorised:
            self.failures.take(host)
            raise
        self.requests.take(caller.key_id)
        if caller.role not in roles:
            raise Forbidden(
                "role", f"a key of role {caller.role} may not ask this; it needs {', '.join(sorted(roles))}"
            )
        return caller

    async def identify(self, header: str | None) -> Caller:
        """The caller behind a header, from memory or from the store. Raises Unauthorised."""
        key_id, text = read_header(header)
        name, now_s = digest(text), self.clock_s()
        remembered = self._known.get(name)
        if remembered is not None and remembered[1] > now_s:
            return remembered[0]
        self._known.pop(name, None)
        caller = self._check(key_id, text, await self.find(key_id))
        self._known[name] = (caller, now_s + self.remember_s)
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return caller

    async def recheck(self, header: str | None) -> None:
        """For a long stream: raises Unauthorised when its key is not valid any more, not when the store is away."""
        try:
            await self.identify(header)
        except StoreUnavailable:
            return

    def _check(self, key_id: str, text: str, row: KeyRow | None) -> Caller:
        # one answer for all cases: a caller without a valid key learns nothing about which keys exist
        refused = Unauthorised("bad_key", "this key is not valid (any more)")
        if row is None or not matches(text, row.key_sha256) or row.revoked_at is not None:
            raise refused
        if row.expires_at is not None and row.expires_at.astimezone(UTC) <= self.now():
            raise refused
        return Caller(key_id, row.tenant_id, row.role)
