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
from contracts.tables import VIEWS
from gateway.counts import Counts
from gateway.metrics import GatewayCollector, Gauges
from stream_jobs.evidence.metrics import EvidenceMetrics
from stream_jobs.metrics import ArchiveMetrics, DetectMetrics, IngestMetrics, TrimMetrics, WatchMetrics
from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "operations" / "policies.md"
STAGES = (
    "agent sources", "spool", "uplink", "broker", "gateway", "Kafka", "ingest", "detection", "closer", "archive",
    "evidence", "gap watch", "relay", "API", "live stream", "console",
)  # fmt: skip
BOUNDED_BEFORE = {("closer", "oversize"), ("archive", "oversize"), ("detection", "oversize")}
"""What comes to them was bounded by the stage before: windows by the store's types, records by the log's limit."""


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def names_of_tests(paths: Iterable[str]) -> set[str]:
    """Functions of test modules as ``path::name``."""
    return {
        f"{path}::{node.name}"
        for path in paths
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def metric_names() -> set[str]:
    """Every metric that our processes tell, as Prometheus writes it."""
    registry = CollectorRegistry()
    for make in (IngestMetrics, DetectMetrics, ArchiveMetrics, WatchMetrics, TrimMetrics, EvidenceMetrics):
        make(registry)
    registry.register(_gateway())
    return _names(registry) | _names(Metrics().registry)


def _gateway() -> Collector:
    gauges = Gauges(**{field.name: 0 for field in fields(Gauges)})  # type: ignore[arg-type]
    return GatewayCollector(Counts(), lambda: gauges)


def _names(registry: CollectorRegistry) -> set[str]:
    return {f"{family.name}_total" if family.type == "counter" else family.name for family in registry.collect()}


def view_columns() -> dict[str, set[str]]:
    """What each view's own SELECT hands out; a view that is made again has at least its last columns."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "infra" / "migrations").glob("*.sql")))
    views = re.findall(r"^CREATE (?:OR REPLACE )?VIEW (\w+)(.*?);\n", text, re.S | re.M)
    return {name: selected(body) for name, body in views}


def selected(body: str) -> set[str]:
    """Names of the columns of a view's outermost SELECT."""
    plain = re.sub(r"--[^\n]*|'(?:[^']|'')*'", " ", body)
    while (flat := re.sub(r"\([^()]*\)", " ", plain)) != plain:
        plain = flat
    inner = re.search(r"\bSELECT\b(?:\s+DISTINCT\b(?:\s+ON\b)?)?(.*?)\bFROM\b", plain, re.S)
    names = [re.search(r"(\w+)\s*$", one) for one in inner[1].split(",")] if inner else []
    assert names and all(names), f"not understood: {body[:80]}"
    return {name[1] for name in names if name}


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
    assert set(named) <= names_of_tests({name.split("::")[0] for name in named})


def test_every_named_counter_exists() -> None:
    assert all(quoted(row[4]) for row in rows())
    assert missing_counters(name for row in rows() for name in quoted(row[4])) == []


def test_columns_are_read_as_the_store_has_them() -> None:
    """``contracts.tables.VIEWS`` is compared with a real store elsewhere."""
    columns = view_columns()
    assert {view: set(first) - columns[view] for view, first in VIEWS.items() if set(first) - columns[view]} == {}
    example = "AS WITH x AS (SELECT no FROM t) SELECT x.a, coalesce(b, 'c, d') AS e, -- f, g\n h FROM x"
    assert selected(example) == {"a", "e", "h"}


NO_COUNTERS = (
    "fleetstream_api_nothing", "heartbeat.nothing", "ledger.nothing", "nothing.column",
    "ledger.SELECT", "ledger.coalesce", "ledger.LATERAL", "ledger.told", "drops.CASE", "drops.agent_gaps",
)  # fmt: skip


@pytest.mark.parametrize("name", NO_COUNTERS)
def test_the_check_can_fail(name: str) -> None:
    assert missing_counters([name]) == [name]
