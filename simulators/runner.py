"""Many real agents in one process: a few threads tick them; an agent ends with its source, when all is acknowledged.

An agent belongs to one thread at a time. What goes wrong in a thread ends the run with that error; the agents' spools
keep everything that was accepted.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from edge_agent.wiring import Agent

log = logging.getLogger(__name__)
LONGEST_SLEEP_S = 0.05
GOODBYES = 16
"""Agents that say goodbye to the broker at the same time."""


class AgentRunner:
    """Starts, ticks and stops agents; ``wait`` tells when all are done."""

    def __init__(self, agents: Sequence[Agent], workers: int) -> None:
        shares = [list(agents[first::workers]) for first in range(min(workers, len(agents)))]
        self._threads = [
            threading.Thread(target=self._work, args=(share,), name=f"agents-{number}", daemon=True)
            for number, share in enumerate(shares)
        ]
        self._leaving = threading.Event()
        self._failed: list[BaseException] = []
        self._lock = threading.Lock()
        self._undrained = 0
        self._running = len(agents)
        self.late_ms = 0
        """The longest that a tick came after its time, since this was last set to 0."""

    @property
    def running(self) -> int:
        """Agents whose source goes on or whose packets are not all acknowledged."""
        return self._running

    @property
    def undrained(self) -> int:
        """Agents that were stopped with packets still in their spool."""
        return self._undrained

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether all agents ended within ``timeout_s``. Raises what went wrong in a worker."""
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        if self._failed:
            raise self._failed[0]
        return not any(thread.is_alive() for thread in self._threads)

    def leave(self) -> None:
        """Stop every agent now, acknowledged or not; the rest stays in the spools."""
        self._leaving.set()
        for thread in self._threads:
            thread.join()

    def _work(self, agents: list[Agent]) -> None:
        try:
            with ThreadPoolExecutor(max_workers=GOODBYES) as goodbyes:
                self._tick_all(agents, goodbyes)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the thread that waits raises it
            log.error("event=worker_failed error=%s", type(error).__name__)
            self._failed.append(error)
            self._leaving.set()

    def _tick_all(self, agents: list[Agent], goodbyes: ThreadPoolExecutor) -> None:
        for agent in agents:
            agent.start()
        turns = [(time.monotonic(), number) for number in range(len(agents))]
        heapq.heapify(turns)
        while turns and not self._leaving.is_set():
            due_s, number = turns[0]
            now_s = time.monotonic()
            if due_s > now_s:
                self._leaving.wait(min(LONGEST_SLEEP_S, due_s - now_s))
                continue
            self.late_ms = max(self.late_ms, int((now_s - due_s) * 1_000))
            wait_ms = agents[number].tick()
            if agents[number].done:
                heapq.heappop(turns)
                goodbyes.submit(self._end, agents[number])
            else:
                heapq.heapreplace(turns, (time.monotonic() + wait_ms / 1_000, number))
        for _, number in turns:
            goodbyes.submit(self._end, agents[number])

    def _end(self, agent: Agent) -> None:
        drained = agent.drained
        try:
            agent.stop(drain_ms=0)
        finally:
            with self._lock:
                self._undrained += not drained
                self._running -= 1
