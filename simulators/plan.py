"""Which devices a fleet has, and where their broker and files are: a JSON file that another process may write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from simulators.errors import PlanError

MachineKind = Literal["car", "turbine"]
HISTORY_FILE = "history.jsonl"
TENANTS = ("north", "south")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedDevice(_Part):
    """One device: who it is, what it measures, its client certificate."""

    device: str
    tenant: str
    machine: MachineKind
    seed: int
    weather: int = 0
    rough: bool = False
    """Readings come late, shuffled, twice or never (mischief.ROUGH)."""
    fault: str = ""
    """A name of ``faults.FAULTS``; none: healthy."""
    drift_ppm: float = 0.0
    clock_offset_ms: int = 0
    certificate: Path
    key: Path


class Broker(_Part):
    """The MQTT broker over TLS."""

    host: str
    port: int
    ca: Path


class FleetPlan(_Part):
    """Everything that a fleet process needs; ``folder`` gets one spool per device and the history."""

    folder: Path
    broker: Broker
    devices: tuple[PlannedDevice, ...]

    @property
    def history(self) -> Path:
        """Every accepted packet of this fleet, over all its runs."""
        return self.folder / HISTORY_FILE


def write_plan(path: Path, plan: FleetPlan) -> None:
    """Write the plan for `python -m simulators fleet`."""
    path.write_text(plan.model_dump_json(indent=1), encoding="utf-8")


def read_plan(path: Path) -> FleetPlan:
    """Raises PlanError when the file is not a plan."""
    try:
        return FleetPlan.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise PlanError(f"{path} is not a plan of a fleet: {error}") from error


def fleet_names(cars: int, turbines: int) -> Iterator[tuple[str, str, MachineKind, int]]:
    """(device, tenant, machine, seed) of a mixed fleet, spread over both tenants.

    >>> [name for name, *_ in fleet_names(2, 1)]
    ['car-001', 'car-002', 'turbine-001']
    """
    counts: tuple[tuple[MachineKind, int], ...] = (("car", cars), ("turbine", turbines))
    for machine, count in counts:
        for number in range(1, count + 1):
            yield f"{machine}-{number:03}", TENANTS[number % len(TENANTS)], machine, number
