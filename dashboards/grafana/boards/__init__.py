"""The menu of boards. A new one is a file with ``make`` and a line here; a law examines every entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dashboards.grafana.boards import asset, delivery, fleet, pipeline

BOARDS: tuple[Callable[[], dict[str, Any]], ...] = (fleet.make, asset.make, delivery.make, pipeline.make)
