"""Every Python file of the project, parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("contracts", "edge_agent", "gateway", "stream_jobs", "anomaly", "api", "dashboards", "simulators", "infra")


@cache
def modules(*tops: str) -> tuple[tuple[str, ast.Module, int], ...]:
    """(path from the root, syntax tree, lines) of every module under the named folders."""
    return tuple(
        (str(path.relative_to(ROOT)), ast.parse(text), text.count("\n"))
        for top in tops
        for path in sorted((ROOT / top).rglob("*.py"))
        if (text := path.read_text(encoding="utf-8")) is not None
    )


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
