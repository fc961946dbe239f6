"""Hundreds of modelled power cuts: what was accepted is there afterwards, byte for byte, and no identity repeats."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import apsw
import pytest

from contracts.acks import Ack
from contracts.packet import Lane, decode_packet
from edge_agent.errors import SpoolCorruptError, SpoolFullError
from edge_agent.spool import Spool
from edge_agent.spool_index import split_id
from edge_agent.spool_open import open_spool
from tests.edge_agent.doubles import NOW_MS, draft, spool_settings
from tests.edge_agent.power_model import Disk, ModelDatabase, ModelVfs, PowerCutError

CUTS = 500
LIVES = 5
"""Cuts that one disk lives through, one after the other."""


class Device:
    """One device through several lives."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder, self.dice = folder, dice
        self.disk = Disk()
        self.accepted: dict[int, bytes] = {}
        self.confirmed: set[int] = set()
        self.given: set[int] = set()

    def open(self) -> Spool:
        self._vfs = ModelVfs(self.disk)
        connect = partial(ModelDatabase, vfs=self._vfs.name)
        return open_spool(spool_settings(self.folder), "car-1", "north", NOW_MS, connect=connect)

    def live(self, spool: Spool, steps: int) -> None:
        """Accept, confirm, checkpoint, until the cut or the end."""
        for _ in range(steps):
            packets, _ = spool.accept(
                [draft(samples=self.dice.randint(1, 200)) for _ in range(self.dice.randint(1, 6))], Lane.LIVE, NOW_MS
            )
            for stored in packets:
                assert stored.identity not in self.given, "an identity repeats"
                self.given.add(stored.identity)
                self.accepted[stored.identity] = stored.frame
            if self.dice.random() < 0.3:
                self._confirm(spool)
            if self.dice.random() < 0.1:
                spool._checkpoint()

    def _confirm(self, spool: Spool) -> None:
        identity = self.dice.choice(sorted(self.accepted))
        epoch, seq = split_id(identity)
        if spool.acknowledge(Ack(epoch, spool._nonces.get(epoch, 0), ((seq, seq + 3),))):
            self.confirmed |= {identity + n for n in range(4)}

    def missing(self, spool: Spool) -> set[int]:
        """Accepted, not confirmed, and gone. Also checks that what is there is what was accepted."""
        held = {stored.identity: stored.frame for stored in spool.all_packets()}
        for identity, frame in held.items():
            assert self.accepted.get(identity, frame) == frame
            header = decode_packet(frame).header
            assert (header.boot_epoch, header.seq) == split_id(identity)
            self.accepted[identity] = frame
            self.given.add(identity)
        return self.accepted.keys() - self.confirmed - held.keys()


def run_lives(device: Device, dice: random.Random, ignores_sync: bool = False) -> int:
    """How many accepted packets were lost in ``LIVES`` cuts."""
    spool = device.open()
    for _ in range(LIVES):
        device.disk.ignores_sync = ignores_sync
        device.disk.remaining = dice.randint(0, 120)
        with pytest.raises((PowerCutError, apsw.Error, SpoolFullError)):
            device.live(spool, 10_000)
        assert device.disk.is_dead
        device.disk = device.disk.after_cut(dice)
        spool = device.open()
        assert not list(device.folder.glob("*.damaged-*"))
        lost = device.missing(spool)
        if lost:
            return len(lost)
    spool.close()
    return 0


def make_device(folder: Path, seed: int) -> tuple[Device, random.Random]:
    folder.mkdir()
    dice = random.Random(seed)
    return Device(folder, dice), dice


@pytest.mark.parametrize("block", range(4))
def test_nothing_accepted_is_lost_by_power_cuts(tmp_path: Path, block: int) -> None:
    for trial in range(CUTS // LIVES // 4):
        device, dice = make_device(tmp_path / f"n{trial}", block * 1_000 + trial)
        assert run_lives(device, dice) == 0


def test_the_model_can_find_a_loss(tmp_path: Path) -> None:
    """The same run on a disk that lies about syncing loses packets or the file: the test above can fail."""
    harmed = 0
    for trial in range(20):
        device, dice = make_device(tmp_path / f"c{trial}", trial)
        try:
            harmed += run_lives(device, dice, ignores_sync=True) > 0
        except (AssertionError, SpoolCorruptError, apsw.Error, SpoolFullError):
            harmed += 1
    assert harmed > 10
