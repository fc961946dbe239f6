"""Is the process alive, can it serve, what does it count, which version. No key: nothing here is about a tenant."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from api.errors import StoreUnavailable
from api.services import Parts
from api.shapes import Health, Version
from api.version import VERSION

router = APIRouter(tags=["health"])
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/livez", response_class=PlainTextResponse)
async def livez() -> str:
    """The process answers."""
    return "ok\n"


@router.get("/readyz")
async def readyz(parts: Parts, response: Response) -> Health:
    """200 when the store answers and the outbox is carried; 503 with reasons otherwise."""
    reasons = []
    try:
        await parts.store.check()
    except StoreUnavailable as error:
        reasons.append(str(error))
    if not parts.relay_works():
        reasons.append("the outbox relay has not reached Kafka yet; new devices are not known to the gateway")
    response.status_code = 503 if reasons else 200
    return Health(ready=not reasons, reasons=reasons)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(parts: Parts) -> Response:
    """Prometheus text format."""
    return Response(parts.metrics.text(), media_type=METRICS_TYPE)


@router.get("/version")
async def version() -> Version:
    """What runs here."""
    return Version(name="fleetstream", version=VERSION, api="v1")
