"""Imports go one way: the contracts in pyproject.toml are kept, and there is no cycle between modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp

from tests.house.tree import ROOMS, ROOT

RUNNABLE = ("edge_agent", "gateway", "stream_jobs", "api")


def test_import_rules_are_kept() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "0 broken" in done.stdout


def test_no_import_cycle() -> None:
    graph = grimp.build_graph(*ROOMS, exclude_type_checking_imports=True, cache_dir=None)
    edges = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(edges) > 50
    assert not _cycle(edges)


def _cycle(edges: dict[str, set[str]]) -> list[str]:
    """What remains after taking away, again and again, the modules that import nothing that is left."""
    left = dict(edges)
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    return sorted(left)


def test_the_cycle_check_can_fail() -> None:
    assert _cycle({"a": {"b"}, "b": {"a"}, "c": set()}) == ["a", "b"]


def test_runnable_rooms_have_the_same_doors() -> None:
    for room in RUNNABLE:
        for door in ("__init__", "__main__", "settings", "wiring", "errors"):
            assert (ROOT / room / f"{door}.py").is_file(), f"{room}/{door}.py"
        assert (ROOT / room / "__main__.py").read_text().count("\n") <= 40


def test_importing_a_room_opens_nothing() -> None:
    """Import every module in a process whose sockets, files for writing and subprocesses are refused."""
    script = ROOT / "tests" / "house" / "import_quietly.py"
    done = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
