"""Faults of processes: killed, frozen, restarted in order, their storage or their log full."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal

from tests.torture.arena import GATEWAYS, SMALL_DISK, Arena
from tests.torture.fleet import wait_until
from tests.torture.plan import FLEETS, KILL, SERVICES, Shape, Step

BALLAST_BYTES = 64 * 1024
PACE_S = 0.1
READY_S = 60.0


class Kill:
    """SIGKILL of a process and everything below it; several at the same moment when the plan says so."""

    name = KILL

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(SERVICES),))

    def strike(self, arena: Arena, step: Step) -> None:
        for target in step.targets:
            arena.kill(target)


class Freeze:
    """SIGSTOP, and SIGCONT after a while: the process comes back and believes that no time has passed."""

    name = "freeze"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice((*SERVICES, *FLEETS)),), chance.uniform(5, 45))

    def strike(self, arena: Arena, step: Step) -> None:
        frozen = arena.signal(step.targets[0], signal.SIGSTOP)
        try:
            arena.stop.wait(step.hold_s)
        finally:
            for pid in frozen:
                _continue(pid)


class Restart:
    """A graceful restart: the process is asked to end and is started again."""

    name = "restart"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice((*SERVICES, *FLEETS)),))

    def strike(self, arena: Arena, step: Step) -> None:
        fleet = arena.fleets.get(step.targets[0])
        if fleet is None:
            arena.terminate(step.targets[0])
        else:
            fleet.stop()
            fleet.start()


class Rolling:
    """All gateway workers one after the other, each back before the next one goes."""

    name = "rolling"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(tuple(chance.sample(GATEWAYS, len(GATEWAYS))))

    def strike(self, arena: Arena, step: Step) -> None:
        for worker in step.targets:
            before = arena.session.supervisor.state().services[worker].restarts
            arena.terminate(worker)

            def is_back(worker: str = worker, before: int = before) -> bool:
                now = arena.session.supervisor.state().services[worker]
                return now.restarts > before and now.state == "ready"

            wait_until(is_back, READY_S, arena.stop)


class Checkpoint:
    """Spark dies and its checkpoints are gone: where to go on stands in the store's ledger only."""

    name = "checkpoint"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(("ingest",))

    def strike(self, arena: Arena, step: Step) -> None:
        if arena.kill("ingest"):
            shutil.rmtree(arena.stack.settings.home / "checkpoints", ignore_errors=True)


class LogFull:
    """Kafka can write no more bytes, neither now nor after a restart: the gateway must promise nothing."""

    name = "log_full"

    def draw(self, chance: random.Random) -> Shape:
        return Shape(("kafka",), chance.uniform(4, 20))

    def strike(self, arena: Arena, step: Step) -> None:
        limited: set[int] = set()

        def hold() -> bool:
            pid = arena.pid("kafka")
            if pid is not None:
                limited.add(pid)
                _limit(pid, 1)
            return False

        wait_until(hold, step.hold_s, arena.stop, PACE_S)
        for pid in limited:
            _limit(pid, resource.RLIM_INFINITY)


class IoError:
    """Every write under the spools of one fleet fails."""

    name = "io_error"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((chance.choice(("fleet-0", "fleet-1", "twin")),), chance.uniform(3, 20))

    def strike(self, arena: Arena, step: Step) -> None:
        fleet = arena.fleets[step.targets[0]]
        fleet.limit_files(1)
        arena.stop.wait(step.hold_s)
        fleet.limit_files(None)


class DiskFull:
    """The file system under the spools of one fleet has no free byte. Where we may not mount: as ``IoError``."""

    name = "disk_full"

    def draw(self, chance: random.Random) -> Shape:
        return Shape((SMALL_DISK,), chance.uniform(5, 30))

    def strike(self, arena: Arena, step: Step) -> None:
        fleet = arena.fleets[SMALL_DISK]
        if not os.path.ismount(fleet.folder):
            fleet.limit_files(1)
            arena.stop.wait(step.hold_s)
            fleet.limit_files(None)
            return
        ballast = fleet.folder / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file:
                wait_until(lambda: not _fill(file.fileno()), step.hold_s, arena.stop, PACE_S / 10)
            arena.stop.wait(step.hold_s)
        finally:
            ballast.unlink(missing_ok=True)


def _fill(descriptor: int) -> bool:
    """Write on; False when there is no room left."""
    try:
        while os.write(descriptor, b"\0" * BALLAST_BYTES):
            continue
    except OSError:
        return False
    return True


def _limit(pid: int, most_bytes: int) -> None:
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
    except ProcessLookupError:
        return


def _continue(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return
