"""Fixtures of this room's tests; see ``fix_api.py``."""

from __future__ import annotations

from tests.api.fix_api import fleet, server

__all__ = ["fleet", "server"]
