"""``python -m stream_jobs`` as a real process that tests may stop and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.paths import default_cache
from infra.processes import free_port
from infra.spark import spark_environment, spark_jars

ROOT = Path(__file__).parents[2]


def wait_for(condition: Callable[[], Any], timeout_s: float = 600.0, poll_s: float = 0.05) -> Any:
    """The first true answer of ``condition``."""
    deadline_s = time.monotonic() + timeout_s
    while not (answer := condition()):
        assert time.monotonic() < deadline_s, "the condition did not come true in time"
        time.sleep(poll_s)
    return answer


@dataclass(slots=True)
class Job:
    """One running job in its own process group."""

    process: subprocess.Popen[bytes]
    port: int
    log_file: Path

    @classmethod
    def start(cls, name: str, folder: Path, settings: Mapping[str, object]) -> Job:
        port = free_port()
        jars = ",".join(map(str, spark_jars(default_cache())))
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "JARS": jars, "METRICS_PORT": port, "CHECKPOINT_FOLDER": folder / "checkpoints",
            "ARCHIVE_FOLDER": folder / "archive", **settings,
        }  # fmt: skip
        environment = {f"FLEETSTREAM__STREAM_JOBS__{key}": str(value) for key, value in values.items()}
        log_file = folder / f"{name}-{port}.log"
        with log_file.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "stream_jobs", name],
                cwd=ROOT,
                env={**os.environ, **spark_environment(default_cache()), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(process, port, log_file)

    def ready(self) -> bool:
        """Whether it says so; a job that ended is an error."""
        assert self.process.poll() is None, self.log_file.read_text()[-3000:]
        try:
            return bool(self.get("/readyz"))
        except (urllib.error.URLError, OSError):
            return False

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        """SIGKILL the driver, the JVM and the Python workers at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(180)

    def stop(self) -> int:
        """SIGTERM, as a supervisor does; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(180)

    def end(self) -> None:
        """Leave nothing behind, however the test went."""
        if self.process.poll() is None:
            self.kill()
