"""A small fleet of real agents in a process of its own, so that it can be killed: ``python -m tests.walk.waves FILE``.

FILE is JSON: mqtt (host, port), journal, agents (device, tenant, ca, cert, key, spool). Each agent reads two smooth
signals ten times a second. SIGTERM stops the sources, waits for acknowledgements and ends with code 0.
"""

from __future__ import annotations

import json
import logging
import math
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_agent.agent import Agent
from edge_agent.clock import SystemClock
from edge_agent.journal import FileJournal
from edge_agent.settings import AgentSettings
from edge_agent.sources.base import Reading
from edge_agent.wiring import build_agent

SPEED, ENGINE_SPEED = 1, 20
EVERY_MS = 100
DRAIN_MS = 180_000


class Waves:
    """Two sine waves by wall time; what was missed while the process was dead is not made up."""

    can_wait = False
    cursor: str | None = None
    finished = False

    def __init__(self, number: int) -> None:
        self._number = number
        self._next_ms: int | None = None

    def seek(self, cursor: str) -> None:
        raise AssertionError(f"a live source has no past, asked for {cursor}")

    def read(self, now_ms: int, limit: int) -> Sequence[Reading]:
        begin = self._next_ms if self._next_ms is not None else now_ms - now_ms % EVERY_MS
        due = range(begin, now_ms + 1, EVERY_MS)[:limit]
        self._next_ms = begin + len(due) * EVERY_MS
        return [reading for at_ms in due for reading in self._at(at_ms)]

    def _at(self, at_ms: int) -> tuple[Reading, Reading]:
        phase = at_ms / 7_000 + self._number
        return (
            Reading(SPEED, at_ms, round(60 + 40 * math.sin(phase), 2)),
            Reading(ENGINE_SPEED, at_ms, round(2_000 + 900 * math.sin(phase * 1.3), 1)),
        )

    def close(self) -> None:
        """Holds nothing open."""


def make_agent(number: int, one: dict[str, str], mqtt: dict[str, Any], journal: FileJournal) -> Agent:
    keys = {name: one[name] for name in ("ca", "cert", "key")}
    settings = AgentSettings.model_validate(
        {
            "device": one["device"], "tenant": one["tenant"], "spool": {"path": one["spool"]},
            "mqtt": {**mqtt, **keys, "backoff_min_ms": 100, "backoff_max_ms": 1_000},
            "packing": {"packet_ms": 250}, "sampling": {"thin": False},
            "uplink": {"ack_ms": 500, "resend_ms": 3_000, "resend_max_ms": 6_000, "status_ms": 1_000},
        }
    )  # fmt: skip
    return build_agent(settings, Waves(number), clock=SystemClock(), journal=journal)


def main(file: Path) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s")
    told = json.loads(file.read_text(encoding="utf-8"))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    journal = FileJournal(Path(told["journal"]))
    agents = [make_agent(number, one, told["mqtt"], journal) for number, one in enumerate(told["agents"])]
    for agent in agents:
        agent.start()
    while not stop.is_set():
        stop.wait(min(agent.tick() for agent in agents) / 1_000)
    threads = [threading.Thread(target=agent.stop, kwargs={"drain_ms": DRAIN_MS}) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
