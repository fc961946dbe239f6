"""The agent's spool and footprint: durable packets a second, bytes to flash, resident memory, 15 days offline."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from contracts.packet import Lane
from contracts.signals import catalogue
from edge_agent.packing import Draft, Packer
from edge_agent.settings import PackingSettings, SpoolSettings
from edge_agent.sources.base import Reading
from edge_agent.spool import Spool
from edge_agent.spool_open import open_spool
from tests.bench.figures import Figure, Report, spent

DAY_S = 86_400
BEGIN_MS = 1_790_000_000_000
PROFILE = [s for s in sorted(catalogue(), key=lambda s: s.number) if s.number < 100 and s.retention == 1][:20]
"""The default profile: 20 signals, all of one retention class, so that a second is one packet."""


def drafts(count: int, per_signal: int, begin_ms: int = BEGIN_MS) -> list[Draft]:
    """Packets of one second: the default profile, ``per_signal`` samples each."""
    packer, made = Packer(PackingSettings(), catalogue()), []
    for number in range(count):
        at_ms = begin_ms + number * 1_000
        for signal, step in itertools.product(PROFILE, range(per_signal)):
            middle, reach = (signal.minimum + signal.maximum) / 2, (signal.maximum - signal.minimum) / 50
            value = middle + reach * math.sin(number / 30 + signal.number)
            packer.add([Reading(signal.number, at_ms + step * 1_000 // per_signal, value)], number * 1_000)
        made += packer.close(number * 1_000, clock_trusted=True)
    return made


def open_in(folder: str) -> Spool:
    return open_spool(SpoolSettings(path=Path(folder) / "spool.db"), "bench", "acme", BEGIN_MS)


def durable_rate(per_commit: int, packets: list[Draft]) -> tuple[float, float]:
    """(packets a second, CPU-seconds per 100,000 packets)."""
    with tempfile.TemporaryDirectory() as folder:
        spool = open_in(folder)
        with spent() as cost:
            for at in range(0, len(packets), per_commit):
                spool.accept(packets[at : at + per_commit], Lane.LIVE, BEGIN_MS)
        return len(packets) / cost.wall_s, cost.cpu_s / len(packets) * 100_000


def written_per_commit(packets: list[Draft], per_commit: int) -> float:
    """Bytes handed to the disk per commit, checkpoints included, counted by the kernel (``/proc/self/io``)."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        spool = open_in(folder)
        before = _written()
        for at in range(0, len(packets), per_commit):
            spool.accept(packets[at : at + per_commit], Lane.LIVE, BEGIN_MS)
        return (_written() - before) / (len(packets) / per_commit)


def bytes_per_sample(packets: list[Draft]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        spool = open_in(folder)
        for at in range(0, len(packets), 100):
            spool.accept(packets[at : at + 100], Lane.BACKLOG, BEGIN_MS)
        return spool.index.total.size_bytes / sum(draft.samples for draft in packets)


def resident_mb() -> float:
    """Memory of a process that is one agent with nobody to talk to, after its first seconds."""
    script = (
        "import sys,time\n"
        "from pathlib import Path\n"
        "from edge_agent.settings import AgentSettings\n"
        "from edge_agent.sources.scripted import ScriptedSource\n"
        "from edge_agent.sources.base import Reading\n"
        "from edge_agent.wiring import build_agent\n"
        "now=int(time.time()*1000)\n"
        "source=ScriptedSource([Reading(n,now+s*1000,1.0) for s in range(60) for n in range(20,30)])\n"
        "settings=AgentSettings(device='b',tenant='t',spool={'path':Path(sys.argv[1])},mqtt={'port':1})\n"
        "agent=build_agent(settings,source)\n"
        "agent.start()\n"
        "end=time.monotonic()+6\n"
        "while time.monotonic()<end:\n"
        "    time.sleep(agent.tick()/1000)\n"
        "print(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1])\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", script, f"{folder}/spool.db"], capture_output=True, text=True, check=True
        )
    return int(done.stdout.split()[-1]) / 1024


def run() -> Report:
    report = Report("Agent")
    second = drafts(20_000, 1)
    rates = [durable_rate(100, second) for _ in range(3)]
    samples = len(PROFILE)
    report.figures += [
        Figure(
            "durable packets, 100 per commit",
            "packets/s",
            tuple(r for r, _ in rates),
            25_000,
            True,
            f"{samples} samples a packet, encoded, WAL, synchronous=FULL",
        ),
        Figure(
            "durable samples, 100 packets per commit",
            "samples/s",
            tuple(r * samples for r, _ in rates),
            None,
            True,
            "the same runs",
        ),
        Figure("CPU per 100,000 packets", "CPU-s", tuple(c for _, c in rates), None, False, "the same runs"),
        Figure(
            "resident memory", "MB", tuple(resident_mb() for _ in range(3)), 50, False, "one agent process, no broker"
        ),
    ]
    daily = written_per_commit(drafts(2_000, 1), 1) * DAY_S
    report.figures.append(
        Figure(
            "written to flash in a day",
            "GB",
            (daily / 1e9,),
            1.0,
            False,
            "20 signals at 1 Hz, one commit a second, extrapolated from 2,000 commits",
        )
    )
    per_sample = bytes_per_sample(drafts(2_000, 5))
    days = 1e9 / (per_sample * 100 * DAY_S)
    report.figures += [
        Figure("spool bytes per sample", "B", (per_sample,), None, False, "100 samples/s, packets of one second"),
        Figure("offline in 1 GB at 100 samples/s", "days", (days,), 15, True, "from the bytes per sample"),
    ]
    report.notes += [
        "a packet of the default profile has 20 blocks of one sample, the dearest shape to encode",
        "encoding takes about four fifths of a durable packet (fastavro writes 20 blocks from Python objects), the "
        "commit a fifth",
    ]
    return report


def _written() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])
