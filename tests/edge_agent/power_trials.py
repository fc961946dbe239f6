"""Power cuts by the thousand, by hand: ``python -m tests.edge_agent.power_trials --trials 10000 --seed 1``.

``--what spool`` (the default): a spool that accepts, confirms, drops and checkpoints until the power fails, again and
again. ``--what crash``: an agent with recorder and spool around a real crash, cut at random instants. The last line is
one JSON object; exit code 1 when anything was lost, doubled or half there.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import apsw

from contracts.acks import Ack
from contracts.packet import Lane, decode_header
from contracts.signals import Retention
from edge_agent.errors import SpoolCorruptError, SpoolFullError
from edge_agent.packing import Draft
from edge_agent.spool import Spool
from edge_agent.spool_index import split_id
from edge_agent.spool_open import open_spool
from tests.edge_agent.doubles import NOW_MS, draft, spool_settings
from tests.edge_agent.power_model import Disk, ModelDatabase, ModelVfs, PowerCutError

log = logging.getLogger(__name__)
PROGRESS = 250
"""Trials between two words about the progress."""

LIVES = 5
"""Cuts that one disk lives through, one after the other."""

MAX_OPERATIONS = 120
"""Writes and syncs until the next cut, at most."""


@dataclass
class Result:
    """What the trials found; every count but ``trials`` and ``cuts_in`` must be zero."""

    trials: int = 0
    corrupt: int = 0
    lost: int = 0
    altered: int = 0
    doubled: int = 0
    cuts_in: Counter[str] = field(default_factory=Counter)
    """In what the power failed."""

    @property
    def clean(self) -> bool:
        return not (self.corrupt or self.lost or self.altered or self.doubled)


class Device:
    """One device through several lives; ``result`` collects what went wrong."""

    def __init__(self, folder: Path, dice: random.Random, result: Result) -> None:
        self.folder, self.dice, self.result = folder, dice, result
        self.disk = Disk()
        self.accepted: dict[int, bytes] = {}
        self.confirmed: set[int] = set()
        self.given: set[int] = set()
        self.doing = "open"

    def open(self) -> Spool:
        self.doing = "open"
        self._vfs = ModelVfs(self.disk)
        connect = partial(ModelDatabase, vfs=self._vfs.name)
        return open_spool(spool_settings(self.folder), "car-1", "north", NOW_MS, connect=connect)

    def live(self, spool: Spool) -> None:
        """Accept, confirm, checkpoint, until the cut."""
        while True:
            self.doing = "accept"
            packets, _ = spool.accept(self._drafts(), Lane.LIVE, NOW_MS)
            for stored in packets:
                self.result.doubled += stored.identity in self.given
                self.given.add(stored.identity)
                self.accepted[stored.identity] = stored.frame
            if self.dice.random() < 0.3:
                self.doing = "confirm"
                self._confirm(spool)
            if self.dice.random() < 0.1:
                self.doing = "checkpoint"
                spool._checkpoint()

    def _drafts(self) -> list[Draft]:
        drafts = [draft(samples=self.dice.randint(1, 200)) for _ in range(self.dice.randint(1, 6))]
        if self.dice.random() < 0.1:
            body = self.dice.randbytes(self.dice.randint(1, 9_000))
            drafts.append(Draft(Retention.PRIORITY, NOW_MS, 0, True, 0, parcel=(2, body)))
        return drafts

    def _confirm(self, spool: Spool) -> None:
        identity = self.dice.choice(sorted(self.accepted))
        epoch, seq = split_id(identity)
        if spool.acknowledge(Ack(epoch, spool.nonce_of(epoch) or 0, ((seq, seq + 3),))):
            self.confirmed |= {identity + n for n in range(4)}
        if self.dice.random() < 0.3:
            spool.apply_acks()

    def look(self, spool: Spool) -> None:
        """Count what was accepted, not confirmed, and gone; and what is there but is not what was accepted."""
        held = {stored.identity: stored.frame for stored in spool.all_packets()}
        for identity, frame in held.items():
            header = decode_header(frame)
            same = self.accepted.get(identity, frame) == frame and (header.boot_epoch, header.seq) == split_id(identity)
            self.result.altered += not same
            self.accepted[identity] = frame
            self.given.add(identity)
        self.result.lost += len(self.accepted.keys() - self.confirmed - held.keys())


def one_disk(folder: Path, seed: int, result: Result, lives: int = LIVES, ignores_sync: bool = False) -> None:
    """``lives`` cuts of one device's disk; stops early when the spool could not go on."""
    folder.mkdir()
    dice = random.Random(seed)
    device = Device(folder, dice, result)
    try:
        spool = device.open()
        for _ in range(lives):
            device.disk.ignores_sync = ignores_sync
            device.disk.remaining = dice.randint(0, MAX_OPERATIONS)
            try:
                device.live(spool)
            except (PowerCutError, apsw.Error, SpoolFullError):
                if not device.disk.is_dead:
                    raise
            result.trials += 1
            result.cuts_in[device.doing] += 1
            device.disk = device.disk.after_cut(dice)
            spool = device.open()
            result.corrupt += bool(list(folder.glob("*.damaged-*")))
            device.look(spool)
        spool.close()
    except (SpoolCorruptError, apsw.Error, SpoolFullError):
        result.corrupt += 1


def spool_trials(trials: int, seed: int, ignores_sync: bool = False) -> Result:
    """At least ``trials`` cuts; the same seed cuts in the same places."""
    result = Result()
    number = 0
    while result.trials < trials:
        lives = min(LIVES, trials - result.trials)
        with tempfile.TemporaryDirectory(prefix="fleetstream-power-") as folder:
            one_disk(Path(folder) / "device", seed * 1_000_003 + number, result, lives, ignores_sync)
        number += 1
        if result.trials // PROGRESS > (result.trials - lives) // PROGRESS:
            log.info("event=power_trials done=%d of=%d clean=%s", result.trials, trials, result.clean)
        if ignores_sync and number > trials:
            break
    return result


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.edge_agent.power_trials", description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--what", choices=("spool", "crash"), default="spool")
    asked = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    begun_s = time.monotonic()
    if asked.what == "spool":
        result = spool_trials(asked.trials, asked.seed)
    else:
        from tests.edge_agent.recorder.crash_power import crash_trials

        result = crash_trials(asked.trials, asked.seed)
    line = {
        "what": asked.what, "seed": asked.seed, "trials": result.trials, "corrupt": result.corrupt,
        "lost": result.lost, "altered": result.altered, "doubled": result.doubled,
        "cuts_in": dict(sorted(result.cuts_in.items())), "seconds": round(time.monotonic() - begun_s, 1),
    }  # fmt: skip
    print(json.dumps(line))
    return 0 if result.clean else 1


if __name__ == "__main__":
    sys.exit(main())
