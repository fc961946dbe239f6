"""Every error as an RFC 9457 problem document; none tells about the inside."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from api.errors import (
    BadQuestion,
    Conflict,
    Forbidden,
    Gone,
    NotAcceptable,
    NotFound,
    NotReady,
    QueryTooLong,
    StoreUnavailable,
    TooMany,
    Unauthorised,
)
from api.middleware import most_bytes
from api.shapes import BadParameter, Problem

MEDIA_TYPE = "application/problem+json"
TITLES = {
    400: "The request cannot be read",
    401: "An API key is needed",
    403: "This key may not do that",
    404: "Nothing is there",
    405: "This method is not allowed here",
    406: "It cannot be had in that form",
    409: "It stands differently by now",
    410: "It is not there any more",
    413: "The request is too large",
    415: "The request's body is of another kind",
    422: "The question cannot be answered",
    429: "Too many requests",
    500: "Something went wrong here",
    503: "This cannot be answered just now",
    504: "The question takes too long",
}
log = logging.getLogger(__name__)


def problem(
    status: int, code: str, detail: str, headers: Mapping[str, str] | None = None,
    errors: Sequence[BadParameter] = (),
) -> Response:  # fmt: skip
    body = Problem(
        type=f"urn:fleetstream:problem:{code}",
        title=TITLES.get(status, "The request failed"),
        status=status,
        detail=detail,
        code=code,
        errors=list(errors),
    )
    return Response(body.model_dump_json(), status, dict(headers or {}), MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Register a handler for each error that a route or the framework can raise."""
    app.add_exception_handler(Exception, _unexpected)
    for kind, handler in (
        (HTTPException, _http), (RequestValidationError, _invalid), (BadQuestion, _bad_question),
        (Unauthorised, _unauthorised), (Forbidden, _forbidden), (NotFound, _not_found), (TooMany, _too_many),
        (QueryTooLong, _too_long), (StoreUnavailable, _unavailable), (NotReady, _not_ready),
        (NotAcceptable, _not_acceptable), (Gone, _gone), (Conflict, _conflict),
    ):  # fmt: skip
        app.add_exception_handler(kind, handler)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
    details = {
        404: "this address is not part of the service",
        405: "the allowed methods stand in the header Allow",
        413: f"this request's body has at most {most_bytes(request.url.path)} bytes",
    }
    code = codes.get(error.status_code, f"http_{error.status_code}")
    detail = details.get(error.status_code, "the request was not understood")
    return problem(error.status_code, code, detail, error.headers)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [BadParameter(parameter=str(one["loc"][-1]), detail=_short(str(one["msg"]))) for one in error.errors()]
    detail = "; ".join(f"{one.parameter}: {one.detail}" for one in found[:5])
    return problem(422, "invalid_parameter", detail, errors=found)


async def _bad_question(_: Request, error: Exception) -> Response:
    assert isinstance(error, BadQuestion)
    return problem(
        422, error.reason, error.detail, errors=[BadParameter(parameter=error.parameter, detail=error.detail)]
    )


async def _unauthorised(_: Request, error: Exception) -> Response:
    assert isinstance(error, Unauthorised)
    return problem(401, error.reason, error.detail, {"WWW-Authenticate": 'Bearer realm="fleetstream"'})


async def _forbidden(_: Request, error: Exception) -> Response:
    assert isinstance(error, Forbidden)
    return problem(403, error.reason, error.detail)


async def _not_found(_: Request, error: Exception) -> Response:
    assert isinstance(error, NotFound)
    return problem(404, error.reason, error.detail)


async def _too_many(request: Request, error: Exception) -> Response:
    assert isinstance(error, TooMany)
    request.app.state.services.metrics.limited.labels(error.limit).inc()
    return problem(429, "too_many_requests", error.detail, {"Retry-After": str(error.retry_after_s)})


async def _too_long(_: Request, error: Exception) -> Response:
    return problem(504, "query_too_long", str(error))


async def _unavailable(_: Request, error: Exception) -> Response:
    return problem(503, "store_unavailable", str(error), {"Retry-After": "2"})


async def _not_ready(_: Request, error: Exception) -> Response:
    assert isinstance(error, NotReady)
    return problem(503, error.reason, error.detail)


async def _not_acceptable(_: Request, error: Exception) -> Response:
    assert isinstance(error, NotAcceptable)
    return problem(406, error.reason, error.detail, {"Vary": "Accept"})


async def _conflict(_: Request, error: Exception) -> Response:
    assert isinstance(error, Conflict)
    return problem(409, error.reason, error.detail)


async def _gone(_: Request, error: Exception) -> Response:
    assert isinstance(error, Gone)
    return problem(410, error.reason, error.detail)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("event=unexpected_error method=%s error=%s", request.method, type(error).__name__, exc_info=error)
    return problem(500, "internal", "this is our fault and was logged; nothing was changed")


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"


BODY_STATUSES = (400, 413, 415)
"""Of requests with a body: it cannot be read, is too large, is of another kind."""


def tell_of_bodies(operation: dict[str, Any]) -> None:
    """Add to an operation of the schema what its body can be refused for."""
    if "requestBody" in operation:
        for status in BODY_STATUSES:
            content = deepcopy(operation["responses"]["409"]["content"])
            operation["responses"].setdefault(str(status), {"description": TITLES[status], "content": content})
