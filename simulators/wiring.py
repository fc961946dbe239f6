"""The only place that knows concrete classes: planned devices into real agents with simulated or recorded sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge_agent.clock import Clock, SystemClock
from edge_agent.journal import Journal
from edge_agent.settings import AgentSettings
from edge_agent.settings import load_settings as load_agent_settings
from edge_agent.sources.base import Source
from edge_agent.wiring import Agent, build_agent
from simulators.car import Car
from simulators.faults import Faulty
from simulators.machine import Machine
from simulators.mischief import ROUGH, DriftingClock, MischievousSource
from simulators.plan import Broker, FleetPlan, PlannedDevice
from simulators.settings import SimulatorSettings
from simulators.source import SimulatedSource
from simulators.turbine import Turbine

REPLAY_TICK_MS = 10


def build_machine(device: PlannedDevice) -> Machine:
    """The menu of machines."""
    machine: Machine = Car(device.seed) if device.machine == "car" else Turbine(device.seed, device.weather)
    return Faulty(machine, device.fault) if device.fault else machine


def build_fleet(
    plan: FleetPlan, settings: SimulatorSettings, journal: Journal, clock: Clock | None = None
) -> list[tuple[Agent, SimulatedSource]]:
    """One agent per planned device, not started, each with its own spool file and certificate."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    fleet = []
    for device in plan.devices:
        source = SimulatedSource(build_machine(device))
        agent_settings = load_agent_settings(
            device=device.device,
            tenant=device.tenant,
            tick_ms=settings.tick_ms,
            packing={"packet_ms": settings.packet_ms},
            **_common(plan.broker, device.certificate, device.key, plan.folder / f"{device.device}.db", settings),
        )
        heard = MischievousSource(source, ROUGH, device.seed) if device.rough else source
        fleet.append((build_agent(agent_settings, heard, _clock(device, clock or SystemClock()), journal), source))
    return fleet


def build_replay_agent(
    device: str, tenant: str, source: Source, broker: Broker, certificate: Path, key: Path, spool: Path,
    settings: SimulatorSettings, journal: Journal,
) -> Agent:  # fmt: skip
    """An agent that thins nothing and packs as tightly as it may: a recording's values all arrive."""
    agent_settings: AgentSettings = load_agent_settings(
        device=device,
        tenant=tenant,
        tick_ms=REPLAY_TICK_MS,
        packing={"packet_ms": settings.packet_ms, "max_samples": settings.replay_samples},
        sampling={"thin": False},
        **_common(broker, certificate, key, spool, settings),
    )
    return build_agent(agent_settings, source, None, journal)


def _clock(device: PlannedDevice, clock: Clock) -> Clock:
    wrong = device.drift_ppm or device.clock_offset_ms
    return DriftingClock(clock, device.drift_ppm, device.clock_offset_ms) if wrong else clock


def _common(broker: Broker, certificate: Path, key: Path, spool: Path, settings: SimulatorSettings) -> dict[str, Any]:
    return {
        "mqtt": {
            "host": broker.host, "port": broker.port, "ca": broker.ca, "cert": certificate, "key": key,
            "backoff_max_ms": 5_000,
        },
        "spool": {"path": spool, "max_bytes": settings.spool_bytes},
        "uplink": {"ack_ms": settings.ack_ms, "status_ms": settings.status_ms},
    }  # fmt: skip
