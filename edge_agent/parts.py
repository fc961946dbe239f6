"""What wiring builds an agent from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge_agent.command_memory import CommandMemory
from edge_agent.commands import Handler
from edge_agent.link import Link
from edge_agent.packing import Packer
from edge_agent.recorder.post import CrashPost
from edge_agent.sampling import Sampler
from edge_agent.sources.base import Reading, Source
from edge_agent.spool import Spool
from edge_agent.uplink import Uplink

Derive = Callable[[Sequence[Reading]], list[Reading]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What wiring builds an agent from."""

    source: Source
    sampler: Sampler
    packer: Packer
    link: Link
    uplink: Uplink
    open_spool: Callable[[bool], Spool]
    """Opens the spool; True when the file at hand is known to be damaged. Raises SpoolFullError."""
    give_reserve: Callable[[], None]
    """Release the bytes that are held back for a full disk."""
    on_receipt: Handler
    """Takes the cloud's receipts for crash records."""
    take_reserve: Callable[[], bool]
    """Hold them back again; False while the disk has none."""
    memory: CommandMemory
    """Which commands were carried out, over restarts."""
    crash: CrashPost | None = None
    """The crash recorder, if this device has one."""
    derive: Derive | None = None
    """Makes further readings of those that were read."""
