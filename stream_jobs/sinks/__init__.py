"""Ways into the store; the menu. psycopg lives in this package and nowhere else in the room."""

from __future__ import annotations

from collections.abc import Callable

from stream_jobs.sinks.base import Sink, Target
from stream_jobs.sinks.driver import DriverSink
from stream_jobs.sinks.tasks import TaskSink

SINKS: dict[str, Callable[[Target], Sink]] = {"tasks": TaskSink, "driver": DriverSink}
"""Name in the settings to sink; each must pass ``tests/laws/test_sinks.py``."""
