"""Fixtures of this room's tests."""

from __future__ import annotations

import pytest

from tests.stream_jobs.fix_ingest import heart
from tests.stream_jobs.fix_scene import scene

__all__ = ["heart", "scene"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Py4J leaves the sockets of its callback threads to the garbage collector; that is not our leak."""
    for item in items:
        if "heart" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
