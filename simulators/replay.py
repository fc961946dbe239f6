"""Recordings through the real agent: one agent per file, nothing thinned, resumable at any point.

The place in the recording is stored by the agent in the very transaction that accepts the packets read so far. A
replay that was killed goes on from there: nothing is left out and nothing is sent under a second identity. What a
folder was begun with (which file, which values) is written down first, so that a resumed run cannot mix two ways of
counting.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from edge_agent.journal import AcceptedPacket
from edge_agent.wiring import FileJournal, read_journal
from simulators.errors import PlanError
from simulators.kit_obd import RecordingSource, Values, device_name, recorded_on
from simulators.plan import HISTORY_FILE, Broker
from simulators.runner import AgentRunner
from simulators.settings import SimulatorSettings
from simulators.tally import Tally
from simulators.wiring import build_replay_agent

MEMO_FILE = "replay.json"
SPOOL_FILE = "spool.db"


@dataclass(frozen=True, slots=True)
class Drive:
    """One file to replay: its device, and the folder that keeps its spool, history and memo."""

    path: Path
    device: str
    folder: Path

    @property
    def history(self) -> Path:
        return self.folder / HISTORY_FILE


@dataclass(frozen=True, slots=True)
class Memo:
    """What a folder was begun with."""

    values: Values
    sha256: str


@dataclass(frozen=True, slots=True)
class Credential:
    """Paths of a device's client certificate and key."""

    certificate: Path
    key: Path


def plan_drives(paths: Sequence[Path], folder: Path) -> list[Drive]:
    """One drive per file. Raises PlanError for a missing file or a name that stands twice, Rejected for a bad name."""
    drives = []
    for path in paths:
        if not path.is_file():
            raise PlanError(f"{path} is not a file; nothing was sent")
        recorded_on(path)
        device = device_name(path)
        drives.append(Drive(path, device, folder / device))
    twice = {drive.device for drive in drives if sum(other.device == drive.device for other in drives) > 1}
    if twice:
        raise PlanError(f"several files would be the asset {', '.join(sorted(twice))}; nothing was sent")
    return drives


def begin(drive: Drive, values: Values, resume: bool) -> None:
    """Make the drive's folder, or find it fit to go on. Raises PlanError that says what to do instead."""
    memo = Memo(values, hashlib.sha256(drive.path.read_bytes()).hexdigest())
    memo_file = drive.folder / MEMO_FILE
    if not memo_file.exists():
        drive.folder.mkdir(parents=True, exist_ok=True)
        memo_file.write_text(json.dumps(asdict(memo)), encoding="utf-8")
        return
    if not resume:
        raise PlanError(
            f"{drive.device} was begun before; nothing was sent now; --resume goes on where it was, "
            "--fresh begins anew when the store holds nothing of it"
        )
    if Memo(**json.loads(memo_file.read_text(encoding="utf-8"))) != memo:
        raise PlanError(
            f"{drive.device} was begun with another file or other --values, so it cannot go on like this; nothing was "
            "sent now; give what it was begun with, or empty the store and use --fresh"
        )


def forget(drive: Drive) -> None:
    """Remove spool, history and memo: the next replay is a new device life."""
    shutil.rmtree(drive.folder, ignore_errors=True)


def history_of(drives: Sequence[Drive]) -> dict[tuple[str, int, int], AcceptedPacket]:
    """Everything that the drives' agents accepted, over all runs."""
    history: dict[tuple[str, int, int], AcceptedPacket] = {}
    for drive in drives:
        if drive.history.exists():
            history |= read_journal(drive.history)
    return history


class Replay:
    """The agents of some drives at work. ``start``, ask ``wait`` until it says True, then ``close``."""

    def __init__(
        self, drives: Sequence[Drive], credentials: Sequence[Credential], tenant: str, broker: Broker, speed: float,
        values: Values, settings: SimulatorSettings,
    ) -> None:  # fmt: skip
        self._journals = [FileJournal(drive.history) for drive in drives]
        self._tallies = [Tally(journal) for journal in self._journals]
        self._sources = [RecordingSource(drive.path, speed, values) for drive in drives]
        parts = zip(drives, credentials, self._sources, self._tallies, strict=True)
        agents = [
            build_replay_agent(
                drive.device, tenant, source, broker, credential.certificate, credential.key,
                drive.folder / SPOOL_FILE, settings, tally,
            )
            for drive, credential, source, tally in parts
        ]  # fmt: skip
        self._runner = AgentRunner(agents, settings.workers)

    @property
    def accepted_samples(self) -> int:
        """Of this run, and what a resumed run found in its spools."""
        return sum(tally.samples for tally in self._tallies)

    @property
    def accepted_packets(self) -> int:
        return sum(tally.packets for tally in self._tallies)

    @property
    def running(self) -> int:
        """Recordings that are not sent and acknowledged to their end."""
        return self._runner.running

    @property
    def rows(self) -> int:
        """Rows read so far, those of earlier runs included."""
        return sum(source.rows for source in self._sources)

    def start(self) -> None:
        self._runner.start()

    def wait(self, timeout_s: float) -> bool:
        """Whether every recording is read to its end and acknowledged. Raises what went wrong in an agent."""
        return self._runner.wait(timeout_s)

    def close(self) -> None:
        """Stop where it is; everything accepted stays in the spools."""
        self._runner.leave()
        for source in self._sources:
            source.close()
        for journal in self._journals:
            journal.close()
