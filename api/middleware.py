"""Around every answer: security headers, request metrics. Plain ASGI, so that streams pass through unbuffered."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.imports import MOST_BYTES
from api.metrics import Metrics

SECURITY = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "geolocation=(), camera=(), microphone=()",
}
"""No inline script or style, nothing from elsewhere, in no one's frame."""


MAX_BODY_BYTES = 64 * 1024
"""Of a request. The largest that makes sense is a command; what is longer is not taken into memory."""

LARGER_BODIES = {"/api/v1/fleet/import": MOST_BYTES}
"""Files, by the address that takes them."""


def most_bytes(path: str) -> int:
    """What a request to this address may carry."""
    return LARGER_BODIES.get(path, MAX_BODY_BYTES)


class BodyLimit:
    """Stops reading a body that is too large; whoever reads it answers with 413."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken, most = 0, most_bytes(scope.get("path", ""))

        async def receive_some() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise HTTPException(413)
            return message

        await self._app(scope, receive_some, send)


class Surroundings:
    """Adds the headers, counts the request under its route's template (never its address)."""

    def __init__(self, app: ASGIApp, metrics: Metrics, elapsed_s: Callable[[], float]) -> None:
        self._app = app
        self._metrics = metrics
        self._elapsed_s = elapsed_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = self._elapsed_s()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._dress(scope, message)
                route = getattr(scope.get("route"), "path", "other")
                self._metrics.seconds.labels(route).observe(self._elapsed_s() - started_s)
                self._metrics.requests.labels(route, _method(scope), str(message["status"])).inc()
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _dress(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in SECURITY.items():
            headers[name] = value
        # pages are checked with the server each time (ETag); tenants' data is kept by nobody
        headers.setdefault("Cache-Control", "no-store" if scope["path"].startswith("/api/") else "no-cache")


def _method(scope: Scope) -> str:
    """A caller may send any word as method; labels must stay few."""
    method = str(scope["method"])
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"
