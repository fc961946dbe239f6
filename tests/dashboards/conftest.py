"""The page's tests use the API's fleet and server, one browser each, and a folder for photographs.

``FLEETSTREAM_SCREENSHOTS=folder`` keeps the photographs, to be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.fix_api import fleet, server
from tests.dashboards.browser import Browser, find_browser, open_browser

__all__ = ["fleet", "server"]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with open_browser(str(find_browser()), tmp_path / "profile") as made:
        yield made


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("FLEETSTREAM_SCREENSHOTS", tmp_path / "pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
