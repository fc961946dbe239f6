"""The menu of resources. A new one is a file with ``router`` and a line here; routes only ask, shape and answer."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes import (
    alerts,
    assets,
    channels,
    commands,
    edr,
    exports,
    feed,
    findings,
    groups,
    health,
    ledger,
    letters,
    live,
    positions,
    questions,
    readings,
    windows,
)

API_ROUTERS: tuple[APIRouter, ...] = (
    edr.router, assets.router, positions.router, readings.router, windows.router, ledger.router, live.router,
    commands.router, findings.router, alerts.router, channels.router,
    exports.router, feed.router, groups.router, letters.router, questions.router,
)  # fmt: skip
PLAIN_ROUTERS: tuple[APIRouter, ...] = (health.router,)
