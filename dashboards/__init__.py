"""What people look at: the console's static page, served by the API from the folder it is told.

Comes in: JSON from the API's ``/api/v1`` and its live stream. Goes out: HTML, CSS and JavaScript without a build step,
without anything from elsewhere, under ``default-src 'self'``. No Python of this room runs beside the API.
"""

from __future__ import annotations

from pathlib import Path

CONSOLE_FOLDER = Path(__file__).parent / "console"
"""The page; infra passes it to the API as ``FLEETSTREAM__API__PAGES``."""
