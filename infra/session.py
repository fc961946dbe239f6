"""A stack that runs as long as its holder wants: lock, ports, start, watch, stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from infra.rooms import Stack
from infra.settings import InfraSettings
from infra.state import take_lock
from infra.supervisor import Supervisor
from infra.wiring import DailyMaintenance, Shape, build_stack, build_supervisor, check_disk, pick_ports

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Session:
    """A running stack: what it is told (``stack``) and who watches it (``supervisor``)."""

    stack: Stack
    supervisor: Supervisor


@contextmanager
def open_session(settings: InfraSettings, shape: Shape | None = None) -> Iterator[Session]:
    """Check the machine, hold the lock, build everything; stop all that was started on the way out.

    Raises AlreadyUp, SetupError or ServiceFailed, each with its fix.
    """
    check_disk(settings)
    with take_lock(settings.home):
        ports = pick_ports(settings)
        supervisor = build_supervisor(settings, ports, shape)
        try:
            yield Session(build_stack(settings, ports), supervisor)
        finally:
            supervisor.stop()


@contextmanager
def running_stack(settings: InfraSettings, shape: Shape | None = None) -> Iterator[Session]:
    """A started stack, watched in the background; the demo and end-to-end tests run inside of it."""
    with open_session(settings, shape) as session:
        session.supervisor.start()
        upkeep = DailyMaintenance(session.stack)
        watcher = threading.Thread(target=session.supervisor.run, args=(upkeep,), name="supervisor")
        watcher.start()
        try:
            yield session
        finally:
            session.supervisor.request_stop()
            watcher.join()
