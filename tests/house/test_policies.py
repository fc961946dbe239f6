"""The table of policies names tests, metrics, fields and columns that exist, for every stage and kind of trouble."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from api.metrics import Metrics
from contracts.status import AgentStatus
from gateway.counts import Counts
from gateway.metrics import GatewayCollector, Gauges
from stream_jobs.evidence.metrics import EvidenceMetrics
from stream_jobs.metrics import ArchiveMetrics, IngestMetrics, TrimMetrics, WatchMetrics
from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "operations" / "policies.md"
STAGES = (
    "agent sources", "spool", "uplink", "broker", "gateway", "Kafka", "ingest", "closer", "archive", "evidence",
    "gap watch", "relay", "API", "live stream", "console",
)  # fmt: skip
BOUNDED_BEFORE = {("closer", "oversize"), ("archive", "oversize")}
"""What comes to them was bounded by the stage before: windows by the store's types, records by the log's limit."""


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_names(paths: Iterable[str]) -> set[str]:
    """Functions of test modules as ``path::name``."""
    return {
        f"{path}::{node.name}"
        for path in paths
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


test_names.__test__ = False  # type: ignore[attr-defined]


def metric_names() -> set[str]:
    """Every metric that our processes tell, as Prometheus writes it."""
    registry = CollectorRegistry()
    for make in (IngestMetrics, ArchiveMetrics, WatchMetrics, TrimMetrics, EvidenceMetrics):
        make(registry)
    registry.register(_gateway())
    return _names(registry) | _names(Metrics().registry)


def _gateway() -> Collector:
    gauges = Gauges(**{field.name: 0 for field in fields(Gauges)})  # type: ignore[arg-type]
    return GatewayCollector(Counts(), lambda: gauges)


def _names(registry: CollectorRegistry) -> set[str]:
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()}


def view_columns() -> dict[str, set[str]]:
    """Words of the definitions of each view, where a column's name must stand."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "infra" / "migrations").glob("*.sql")))
    found: dict[str, set[str]] = {}
    for name, body in re.findall(r"CREATE (?:OR REPLACE )?VIEW (\w+)(.*?);\n", text, re.S):
        found[name] = found.get(name, set()) | set(re.findall(r"\w+", body))
    return found


def missing_counters(names: Iterable[str]) -> list[str]:
    metrics, views, heartbeat = metric_names(), view_columns(), {field.name for field in fields(AgentStatus)}
    return [name for name in names if not _exists(name, metrics, views, heartbeat)]


def _exists(name: str, metrics: set[str], views: dict[str, set[str]], heartbeat: set[str]) -> bool:
    if name.startswith("fleetstream_"):
        return name in metrics
    where, _, what = name.partition(".")
    return what in heartbeat if where == "heartbeat" else what in views.get(where, set())


def test_every_stage_has_a_policy_for_every_trouble() -> None:
    found = {(stage, trouble) for stage, trouble, *_ in rows()}
    wanted = {(stage, trouble) for stage in STAGES for trouble in ("slow", "oversize", "poison")} - BOUNDED_BEFORE
    assert wanted - found == {("gap watch", "poison")}, "its input is the store itself"


def test_every_named_test_exists() -> None:
    named = [name for row in rows() for name in quoted(row[3])]
    assert all(quoted(row[3]) for row in rows())
    gone = [name for name in named if not Path(ROOT / name.split("::")[0]).is_file()]
    assert not gone
    assert set(named) <= test_names({name.split("::")[0] for name in named})


def test_every_named_counter_exists() -> None:
    assert all(quoted(row[4]) for row in rows())
    assert missing_counters(name for row in rows() for name in quoted(row[4])) == []


@pytest.mark.parametrize("name", ["fleetstream_api_nothing", "heartbeat.nothing", "ledger.nothing", "nothing.column"])
def test_the_check_can_fail(name: str) -> None:
    assert missing_counters([name]) == [name]
