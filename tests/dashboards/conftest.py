"""The page's tests use the API's fleet and server."""

from __future__ import annotations

from tests.api.fix_api import fleet, server

__all__ = ["fleet", "server"]
