"""Start services in dependency order, keep them running, stop them in reverse.

Knows nothing about what a service does: a service prepares a command, says when it is ready, and may have
work to do once it is. Services whose needs are met start at the same time. One that crashes is started again
with a growing, bounded pause; one that never became ready at the first start stops the whole stack.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from infra.errors import ServiceFailed
from infra.guard import Guard
from infra.processes import Child, Command, wait_ready
from infra.state import ServiceState, StackState, write_state

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
CALM_S = 60.0
"""A service that ran this long starts again with the first pause."""

WATCH_INTERVAL_S = 0.25
log = logging.getLogger(__name__)


def nothing() -> None:
    """The after-work of a service that has none."""


@dataclass(frozen=True, slots=True)
class Service:
    """One entry of the stack's menu. ``prepare`` may take long and runs before the needs are met."""

    name: str
    needs: tuple[str, ...]
    prepare: Callable[[], Command]
    ready: Callable[[], bool]
    after_ready: Callable[[], None] = nothing
    timeout_s: float = 300.0


@dataclass(slots=True)
class _Running:
    """What the supervisor remembers about one service."""

    service: Service
    event: threading.Event = field(default_factory=threading.Event)
    child: Child | None = None
    state: str = "waiting"
    restarts: int = 0
    pause_s: float = FIRST_PAUSE_S
    retry_at_s: float = 0.0
    ready_after_s: float | None = None
    timings: dict[str, float] = field(default_factory=dict)


class Supervisor:
    """Runs the services of one stack until told to stop."""

    def __init__(
        self, home: Path, services: Sequence[Service], ports: dict[str, int], longest_pause_s: float = LONGEST_PAUSE_S
    ) -> None:
        self._home = home
        self._longest_pause_s = longest_pause_s
        self._ports = ports
        self._running = {service.name: _Running(service) for service in services}
        self._guard: Guard | None = None
        self._stopping = threading.Event()
        self._started_ms = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Return when every service is ready; on a failure stop what runs and raise its error."""
        self._started_ms = int(time.time() * 1000)
        self._guard = Guard()
        begun = time.monotonic()
        try:
            with ThreadPoolExecutor(max_workers=len(self._running)) as pool:
                try:
                    started = [pool.submit(self._bring_up, one, begun) for one in self._running.values()]
                    for result in as_completed(started):  # the first failure is the reason of the others
                        result.result()
                except BaseException:
                    self._stopping.set()  # whoever waits for another service must learn that it will not come
                    raise
        except BaseException:
            self.stop()
            raise
        self._publish()

    def timings(self) -> dict[str, dict[str, float]]:
        """Seconds per service: prepare, wait (for its needs), start (until ready), after."""
        return {name: dict(one.timings) for name, one in self._running.items()}

    def run(self, every_round: Callable[[], None] = nothing) -> None:
        """Keep services running until ``request_stop``; ``every_round`` is called about four times a second."""
        while not self._stopping.wait(WATCH_INTERVAL_S):
            changed = [self._look_after(one) for one in self._running.values()]
            if any(changed):
                self._publish()
            every_round()

    def kill(self, name: str) -> None:
        """SIGKILL one service, as the fault harness does; ``run`` starts it again."""
        child = self._running[name].child
        if child is not None:
            os.killpg(child.pid, signal.SIGKILL)

    def request_stop(self) -> None:
        """Make ``run`` return, and ``start`` give up; may be called from a signal handler."""
        self._stopping.set()

    def stop(self) -> None:
        """Stop everything, the services that need others first."""
        self._stopping.set()
        for level in reversed(self._levels()):
            with ThreadPoolExecutor(max_workers=len(level)) as pool:
                list(pool.map(self._end, level))
            self._publish()
        if self._guard:
            self._guard.close()
            self._guard = None

    def state(self) -> StackState:
        services = {
            name: ServiceState(
                state=one.state,
                pid=one.child.pid if one.child and one.child.alive() else None,
                restarts=one.restarts,
                ready_after_s=one.ready_after_s,
                log=str(one.child.command.log_file) if one.child else "",
            )
            for name, one in self._running.items()
        }
        return StackState(os.getpid(), self._started_ms, self._ports, services)

    def _bring_up(self, one: _Running, begun: float) -> None:
        try:
            self._prepare_and_start(one, begun)
        except BaseException:
            self._stopping.set()
            raise

    def _prepare_and_start(self, one: _Running, begun: float) -> None:
        marks = [time.monotonic()]
        command = one.service.prepare()
        marks.append(time.monotonic())
        for need in one.service.needs:
            self._wait_for(self._running[need].event)
        marks.append(time.monotonic())
        self._spawn(one, command)
        assert one.child is not None
        wait_ready(one.child, lambda: self._stopping.is_set() or one.service.ready(), one.service.timeout_s)
        self._refuse_when_stopping()
        marks.append(time.monotonic())
        one.service.after_ready()
        marks.append(time.monotonic())
        steps = zip(("prepare", "wait", "start", "after"), pairwise(marks), strict=True)
        one.timings = {name: round(end - start, 2) for name, (start, end) in steps}
        one.state, one.ready_after_s = "ready", round(time.monotonic() - begun, 2)
        one.event.set()
        log.info("service=%s event=ready after_s=%.2f", one.service.name, one.ready_after_s)
        self._publish()

    def _wait_for(self, event: threading.Event) -> None:
        while not event.wait(0.05):
            self._refuse_when_stopping()

    def _refuse_when_stopping(self) -> None:
        if self._stopping.is_set():
            raise ServiceFailed("The start was given up; what had started is stopped and no data was touched")

    def _spawn(self, one: _Running, command: Command) -> None:
        self._refuse_when_stopping()
        one.child = Child(command)
        one.state = "starting"
        if self._guard:
            self._guard.watch(one.child.pid)

    def _look_after(self, one: _Running) -> bool:
        """One round for one service; whether its state changed."""
        child, before = one.child, one.state
        if one.state == "backing_off":
            if time.monotonic() >= one.retry_at_s and self._needs_ready(one):
                self._restart(one)
        elif child is not None and not child.alive():
            self._note_crash(one, child)
        elif one.state == "starting" and one.service.ready():
            one.state = "ready"
            log.info("service=%s event=ready restarts=%d", one.service.name, one.restarts)
        return one.state != before

    def _note_crash(self, one: _Running, child: Child) -> None:
        code = child.exit_code()
        child.kill()
        if self._guard:
            self._guard.forget(child.pid)
        if time.monotonic() - child.started_s > CALM_S:
            one.pause_s = FIRST_PAUSE_S
        one.state, one.retry_at_s = "backing_off", time.monotonic() + one.pause_s
        log.error("service=%s event=ended code=%s pause_s=%.1f", one.service.name, code, one.pause_s)
        one.pause_s = min(one.pause_s * 2, self._longest_pause_s)

    def _needs_ready(self, one: _Running) -> bool:
        return all(self._running[need].state == "ready" for need in one.service.needs)

    def _restart(self, one: _Running) -> None:
        one.restarts += 1
        try:
            self._spawn(one, one.service.prepare())
        except Exception:
            one.state, one.retry_at_s = "backing_off", time.monotonic() + one.pause_s
            log.exception("service=%s event=restart_failed", one.service.name)

    def _end(self, one: _Running) -> None:
        if one.child is not None:
            one.child.stop()
            if self._guard:
                self._guard.forget(one.child.pid)
        one.state = "stopped"

    def _levels(self) -> list[list[_Running]]:
        """Services grouped so that each group needs only groups before it."""
        left, levels, placed = dict(self._running), [], set[str]()
        while left:
            level = [one for one in left.values() if placed.issuperset(one.service.needs)]
            if not level:
                raise ValueError(f"services need each other in a circle: {sorted(left)}")
            levels.append(level)
            placed.update(one.service.name for one in level)
            left = {name: one for name, one in left.items() if name not in placed}
        return levels

    def _publish(self) -> None:
        with self._lock:
            write_state(self._home, self.state())
