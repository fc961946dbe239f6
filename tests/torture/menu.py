"""The menu of faults, one line each. A new one is a small class with a name, ``draw`` (pure) and ``strike``."""

from __future__ import annotations

import random
from typing import Protocol

from tests.torture import faults_device, faults_network, faults_process, faults_store
from tests.torture.arena import Arena
from tests.torture.plan import Shape, Step


class Fault(Protocol):
    """``strike`` begins it, holds it as long as the step says (or the arena stops) and always ends it."""

    name: str

    def draw(self, chance: random.Random) -> Shape: ...

    def strike(self, arena: Arena, step: Step) -> None: ...


_ALL: tuple[Fault, ...] = (
    faults_process.Kill(),
    faults_process.Freeze(),
    faults_process.Restart(),
    faults_process.Rolling(),
    faults_process.Checkpoint(),
    faults_process.LogFull(),
    faults_process.IoError(),
    faults_process.DiskFull(),
    faults_network.Silence(),
    faults_network.HalfOpen(),
    faults_network.Torn(),
    faults_network.SlowLink(),
    faults_network.Flapping(),
    faults_device.ClockJump(),
    faults_device.Boot1970(),
    faults_device.Unruly(),
    faults_device.HoursLate(),
    faults_device.Duplicates(),
    faults_device.Poison(),
    faults_device.Wild(),
    faults_device.FullSpool(),
    faults_device.Clone(),
    faults_store.Locked(),
    faults_store.NoConnections(),
)
MENU: dict[str, Fault] = {fault.name: fault for fault in _ALL}
