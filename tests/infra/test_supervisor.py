"""The supervisor on small real processes: order, restarts, stops, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from contracts.errors import TryLater
from infra.errors import ServiceFailed
from infra.guard import watch
from infra.processes import Child, Command, wait_ready
from infra.state import ServiceState, StackState, read_state, take_lock, write_state
from infra.supervisor import Service, Supervisor

WAIT_S = 120.0
SERVER = """
import pathlib, signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).touch()
signal.pause()
"""
STUBBORN = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
while True:
    signal.pause()
"""


def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        pause.wait(0.02)


def service(home: Path, name: str, needs: tuple[str, ...] = (), code: str = SERVER) -> Service:
    flag = home / f"{name}.up"

    def prepare() -> Command:
        flag.unlink(missing_ok=True)
        return Command(name, [sys.executable, "-c", code, str(flag)], home / f"{name}.log", stop_timeout_s=1)

    return Service(name, needs, prepare, flag.exists, timeout_s=WAIT_S)


@pytest.fixture
def family() -> Iterator[Callable[[], list[psutil.Process]]]:
    """Processes that this test started and that still run; the test fails when it leaves one."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    def running() -> list[psutil.Process]:
        found = psutil.Process().children(recursive=True)
        return [one for one in found if one.pid not in before and one.status() != psutil.STATUS_ZOMBIE]

    yield running
    until(lambda: running() == [])


def test_services_start_in_order_and_stop_with_their_children(
    tmp_path: Path, family: Callable[[], list[psutil.Process]]
) -> None:
    order: list[str] = []
    made = [service(tmp_path, "api", ("db", "log")), service(tmp_path, "log"), service(tmp_path, "db")]

    def noted(one: Service) -> Service:
        return Service(one.name, one.needs, one.prepare, one.ready, lambda: order.append(one.name))

    supervisor = Supervisor(tmp_path, [noted(one) for one in made], {"api": 1})
    supervisor.start()
    assert order[-1] == "api" and len(order) == 3
    state = supervisor.state()
    assert state.ready and {one.state for one in state.services.values()} == {"ready"}
    groups = [one.pid for one in state.services.values()]
    supervisor.stop()
    assert not any(psutil.pid_exists(pid) for pid in groups if pid)
    assert all(one.state == "stopped" for one in supervisor.state().services.values())


def test_a_killed_service_comes_back_and_is_counted(tmp_path: Path, family: Callable[[], list[psutil.Process]]) -> None:
    supervisor = Supervisor(tmp_path, [service(tmp_path, "db")], {})
    supervisor.start()
    watcher = threading.Thread(target=supervisor.run)
    watcher.start()
    first = supervisor.state().services["db"].pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: supervisor.state().services["db"].restarts == 1 and supervisor.state().ready)
    assert supervisor.state().services["db"].pid != first
    supervisor.request_stop()
    watcher.join()
    supervisor.stop()


def test_a_service_that_ends_at_the_first_start_stops_everything(
    tmp_path: Path, family: Callable[[], list[psutil.Process]]
) -> None:
    broken = service(tmp_path, "broken", code="raise SystemExit('no such setting: colour')")
    services = [service(tmp_path, "api", ("broken",)), service(tmp_path, "db"), broken]
    supervisor = Supervisor(tmp_path, services, {})
    with pytest.raises(ServiceFailed, match=r"broken ended with code 1 while starting: no such setting: colour"):
        supervisor.start()


def test_an_interrupted_start_waits_for_nobody(tmp_path: Path, family: Callable[[], list[psutil.Process]]) -> None:
    """As Ctrl-C at any moment of a start; without giving up, the service below would be waited for an hour."""
    never, asked = service(tmp_path, "never"), threading.Event()

    def interrupt() -> bool:
        if not asked.is_set():
            asked.set()
            os.kill(os.getpid(), signal.SIGINT)
        return False

    slow = Service("slow", (), never.prepare, interrupt, timeout_s=3_600)
    supervisor = Supervisor(tmp_path, [slow, service(tmp_path, "api", ("slow",))], {})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit that it is ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            supervisor.start()
    finally:
        signal.signal(signal.SIGINT, before)
    assert {one.state for one in supervisor.state().services.values()} == {"stopped"}


def test_needs_in_a_circle_are_refused(tmp_path: Path) -> None:
    circle = [service(tmp_path, "a", ("b",)), service(tmp_path, "b", ("a",))]
    with pytest.raises(ValueError, match="circle"):
        Supervisor(tmp_path, circle, {}).stop()


def test_a_stubborn_process_is_killed(tmp_path: Path, family: Callable[[], list[psutil.Process]]) -> None:
    one = service(tmp_path, "stubborn", code=STUBBORN)
    child = Child(one.prepare())
    wait_ready(child, one.ready, WAIT_S)
    child.stop()
    assert child.exit_code() == -signal.SIGKILL


def test_a_killed_supervisor_leaves_nothing_running(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from tests.infra.test_supervisor import service\n"
        "from infra.supervisor import Supervisor\n"
        "home = pathlib.Path(sys.argv[1])\n"
        "supervisor = Supervisor(home, [service(home, 'db')], {})\n"
        "supervisor.start()\n"
        "print(supervisor.state().services['db'].pid, flush=True)\n"
        "supervisor.run()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        parent.kill()
    until(lambda: not group_runs(group))


def group_runs(group: int) -> bool:
    """Whether a process of the group still runs (one that waits for its parent to notice its end does not)."""
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return False


def test_the_guard_remembers_only_what_still_runs() -> None:
    assert watch(["+5\n", "+6\n", "-5\n", "-9\n"]) == {6}


def test_one_supervisor_per_home(tmp_path: Path) -> None:
    state = StackState(1, 2, {"api": 3}, {"db": ServiceState("ready", 4, 0, 1.5, "db.log")})
    write_state(tmp_path, state)
    assert read_state(tmp_path) is None, "a state file without a living supervisor is the past"
    with take_lock(tmp_path):
        assert read_state(tmp_path) == state
        with pytest.raises(TryLater, match="already up"):
            take_lock(tmp_path)
    assert read_state(tmp_path) is None
