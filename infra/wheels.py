"""Build the two wheels: ``fleetstream-edge`` (contracts and the agent, small) and ``fleetstream`` (the cloud).

The checkout has one pyproject.toml. Each wheel is built from a staged copy of its rooms with that file cut to size,
so that no file is in both: the cloud wheel depends on the edge wheel of the same version for ``contracts``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EDGE_ROOMS = ("contracts", "edge_agent")
CLOUD_ROOMS = ("gateway", "stream_jobs", "anomaly", "api", "dashboards", "simulators", "infra")
EDGE_DEPENDENCIES = ("fastavro", "paho-mqtt", "pydantic-settings", "typer", "cryptography")


def edge_pyproject(project: dict[str, object]) -> str:
    """pyproject.toml of the edge wheel, from the ``project`` table of the checkout's own."""
    dependencies = [d for d in _all_dependencies(project) if d.startswith(EDGE_DEPENDENCIES)]
    return _render(project, "fleetstream-edge", dependencies, {}, "fleetstream-agent", EDGE_ROOMS)


def cloud_pyproject(project: dict[str, object]) -> str:
    """pyproject.toml of the cloud wheel: every other room, extras kept."""
    dependencies = [*_strings(project["dependencies"]), f"fleetstream-edge=={project['version']}"]
    extras = {
        name: _strings(value) for name, value in _table(project, "optional-dependencies").items() if name != "dev"
    }
    return _render(project, "fleetstream", dependencies, extras, "fleetstream", CLOUD_ROOMS)


def build_wheels(target: Path) -> list[Path]:
    """Build both into ``target`` and return their paths; needs no network."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    target.mkdir(parents=True, exist_ok=True)
    return [
        _build(edge_pyproject(project), EDGE_ROOMS, target),
        _build(cloud_pyproject(project), CLOUD_ROOMS, target),
    ]


def _build(pyproject: str, rooms: tuple[str, ...], target: Path) -> Path:
    before = set(target.glob("*.whl"))
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        (stage / "pyproject.toml").write_text(pyproject, encoding="utf-8")
        for name in ("README.md", "LICENSE"):
            shutil.copy(ROOT / name, stage / name)
        for room in rooms:
            shutil.copytree(ROOT / room, stage / room, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(stage)]
        subprocess.run(command, check=True, capture_output=True)
    made = sorted(set(target.glob("*.whl")) - before, key=lambda path: path.stat().st_mtime)
    return made[-1] if made else max(target.glob("*.whl"), key=lambda path: path.stat().st_mtime)


def _render(
    project: dict[str, object],
    name: str,
    dependencies: list[str],
    extras: dict[str, list[str]],
    script: str,
    rooms: tuple[str, ...],
) -> str:
    lines = [
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n[project]',
        f'name = "{name}"\nversion = "{project["version"]}"\nreadme = "README.md"\nlicense = "{project["license"]}"',
        f'description = "{project["description"]}"\nrequires-python = "{project["requires-python"]}"',
        f"dependencies = {dependencies}\n\n[project.scripts]",
        f'{script} = "{_table(project, "scripts")[script]}"\n\n[project.optional-dependencies]',
        *[f"{extra} = {values}" for extra, values in extras.items()],
        f"\n[tool.setuptools.packages.find]\ninclude = {[f'{room}*' for room in rooms]}",
        '\n[tool.setuptools.package-data]\n"*" = ["*.toml", "*.avsc", "*.sql", "*.json", "*.html", "*.css", "*.js",'
        ' "*.svg", "py.typed"]',
    ]
    return "\n".join(lines) + "\n"


def _all_dependencies(project: dict[str, object]) -> list[str]:
    extras = _table(project, "optional-dependencies")
    every = [*_strings(project["dependencies"]), *(d for values in extras.values() for d in _strings(values))]
    return list(dict.fromkeys(every))


def _table(project: dict[str, object], name: str) -> dict[str, object]:
    value = project[name]
    if not isinstance(value, dict):
        raise TypeError(f"project.{name} is not a table")
    return value


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


if __name__ == "__main__":
    for wheel in build_wheels(ROOT / "dist"):
        sys.stdout.write(f"{wheel.name} {wheel.stat().st_size // 1024} kB\n")
