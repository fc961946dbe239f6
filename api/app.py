"""The FastAPI application from its parts. No global state, no I/O before its lifespan begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from api.middleware import BodyLimit, Surroundings
from api.problems import MEDIA_TYPE, install, tell_of_bodies
from api.routes import API_ROUTERS, PLAIN_ROUTERS
from api.routes.common import PREFIX
from api.services import Services
from api.shapes import Problem
from api.version import VERSION

DESCRIPTION = (
    "What vehicles and machines measured. Times are RFC 3339 in UTC, values carry units and quality, "
    "errors are RFC 9457 problem details. Send `Authorization: Bearer fsk_…`."
)
PROBLEM_STATUSES = (401, 403, 404, 409, 422, 429, 500, 503, 504)


def create_app(
    services: Services, background: Callable[[], AbstractAsyncContextManager[None]] | None = None
) -> FastAPI:
    """The application; ``background`` runs beside it, from start to end."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await services.store.open()
        try:
            if background is None:
                yield
            else:
                async with background():
                    yield
        finally:
            await services.store.close()

    app = FastAPI(
        title="Fleetstream", version=VERSION, description=DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json", redirect_slashes=False,
    )  # fmt: skip
    app.state.services = services
    install(app)
    problems = {status: {"model": Problem, "content": {MEDIA_TYPE: {}}} for status in PROBLEM_STATUSES}
    for router in API_ROUTERS:
        app.include_router(router, responses=problems)  # type: ignore[arg-type]
    for router in PLAIN_ROUTERS:
        app.include_router(router)
    _add_security_scheme(app)
    if services.settings.pages is not None:
        app.router.routes.append(Pages("/", StaticFiles(directory=services.settings.pages, html=True), name="pages"))
    app.add_middleware(BodyLimit)
    app.add_middleware(Surroundings, metrics=services.metrics, elapsed_s=services.elapsed_s)
    return app


class Pages(Mount):
    """The console's files; never answers for the API, so that a wrong method there is told as such."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["path"].startswith("/api/") or scope["method"] not in ("GET", "HEAD"):
            return Match.NONE, {}
        return super().matches(scope)


def _add_security_scheme(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes,
                openapi_version=app.openapi_version,
            )  # fmt: skip
            schema.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for path, methods in schema["paths"].items():
                for operation in methods.values():
                    _finish(operation, path.startswith(PREFIX))
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _finish(operation: dict[str, Any], needs_key: bool) -> None:
    """Say which operations need a key, what a body can be refused for, and that problems have their own media type."""
    if needs_key:
        operation["security"] = [{"key": []}]
    tell_of_bodies(operation)
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        if status.isdigit() and int(status) >= 400 and "application/json" in content:
            content[MEDIA_TYPE] = content.pop("application/json")
