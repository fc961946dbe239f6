"""The only place that knows which concrete parts an agent is made of.

    agent = build_agent(settings, source, clock=SystemClock(), journal=FileJournal(path))
    agent.start()                       # opens the spool, journals what it holds, starts the MQTT link's thread
    while not done:
        wait_ms = agent.tick()          # never blocks beyond one fsync; tick again after at most wait_ms
    agent.stop(drain_ms=5_000)          # packs, commits, waits for acknowledgements, says goodbye

One agent in its own process is ``agent.run(stop_event)``. A fleet gives each worker thread its share of agents and
ticks them in turn: an agent is used by one thread at a time; only its MQTT link has a thread of its own.
"""

from __future__ import annotations

import threading
from functools import partial

from contracts.commands import Command
from contracts.edr.capsule import Signer
from contracts.signals import Catalogue, catalogue
from edge_agent.agent import Agent
from edge_agent.clock import Clock, SystemClock
from edge_agent.command_memory import UNDATED, read_memory
from edge_agent.commands import Handler
from edge_agent.harsh_braking import HarshBraking
from edge_agent.journal import FileJournal, Journal, read_journal
from edge_agent.link import Link
from edge_agent.mqtt_link import MqttLink
from edge_agent.packing import Packer
from edge_agent.parts import Derive, Parts
from edge_agent.recorder.feed import CrashSource
from edge_agent.sampling import Sampler
from edge_agent.settings import AgentSettings, load_settings
from edge_agent.sources.base import Source
from edge_agent.spool import Spool
from edge_agent.spool_open import SpoolFiles, open_spool, release_reserve, restore_reserve
from edge_agent.uplink import Uplink

__all__ = ["Agent", "FileJournal", "SystemClock", "build_agent", "load_settings", "no_journal", "read_journal"]


def no_journal(_packets: object) -> None:
    """For devices whose history nobody compares."""


def _no_receipt(_command: Command) -> None:
    """For devices without a crash recorder."""


def _derive(settings: AgentSettings, signals: Catalogue) -> Derive | None:
    limit = settings.derive.harsh_braking_mps2
    return None if limit is None else HarshBraking(limit, signals).judge


def build_agent(
    settings: AgentSettings,
    source: Source,
    clock: Clock | None = None,
    journal: Journal = no_journal,
    wake: threading.Event | None = None,
    link: Link | None = None,
    on_receipt: Handler | None = None,
    crash_source: CrashSource | None = None,
    crash_signer: Signer | None = None,
) -> Agent:
    """One agent, not started. Raises SettingsError when certificates cannot be used.

    ``wake`` may be shared by the agents of one worker thread; ``link`` replaces MQTT in tests;
    ``on_receipt`` is given the cloud's receipts when the settings name no recorder. ``crash_source`` feeds the recorder
    beside the ordinary readings; ``crash_signer`` replaces its key (simulations).
    """
    clock = clock or SystemClock()
    wake = wake or threading.Event()
    signals = catalogue()
    link = link or MqttLink(settings.device, settings.mqtt, wake.set)

    def open_own(known_damaged: bool) -> Spool:
        return open_spool(settings.spool, settings.device, settings.tenant, clock.now_ms(), known_damaged=known_damaged)

    crash = None
    if settings.recorder is not None:
        # imported here: a device without a recorder needs no cryptographic library
        from edge_agent.recorder.wiring import build_post

        crash = build_post(settings.recorder, signals, crash_source, clock.now_ms(), crash_signer)

    parts = Parts(
        source=source,
        sampler=Sampler(settings.sampling, signals),
        packer=Packer(settings.packing, signals),
        link=link,
        uplink=Uplink(link, settings.uplink),
        open_spool=open_own,
        on_receipt=crash.on_receipt if crash else on_receipt or _no_receipt,
        give_reserve=partial(release_reserve, settings.spool),
        take_reserve=partial(restore_reserve, settings.spool),
        memory=read_memory(SpoolFiles(settings.spool.path).commands, clock.now_ms() if clock.trusted() else UNDATED),
        crash=crash,
        derive=_derive(settings, signals),
    )
    return Agent(settings, parts, clock, journal, wake)
