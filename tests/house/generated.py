"""Reference pages and golden lists made from code: ``--check`` compares, ``--write`` renews them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from contracts.signals import catalogue
from contracts.tables import ROLES, VIEWS
from contracts.topics import (
    DOWN_ACK,
    DOWN_COMMAND,
    DOWN_IDENTITY,
    LANE_CHANNELS,
    UP_MESSAGES,
    Topics,
    down_topic,
    up_topic,
)
from dashboards.grafana.files import files as grafana_files
from tests.torture import tally

ROOT = Path(__file__).parents[2]


def reliability_page() -> str:
    return tally.page((ROOT / "docs" / "reliability.jsonl").read_text(encoding="utf-8"))


def signals_page() -> str:
    rows = [
        f"| {s.number} | `{s.path}` | {s.unit or '–'} | {s.resolution:g} | {s.minimum:g} … {s.maximum:g} | {s.kind} "
        f"| {s.retention.name.lower()} | {s.lateness} | {s.axis or '–'} | {s.source} | {s.text} |"
        for s in sorted(catalogue(), key=lambda s: s.number)
    ]
    head = "| number | path | unit | resolution | range | kind | retention | late by | axis | source | meaning |"
    return "\n".join(["# Signals", "", "Made from `contracts/signals.toml`.", "", head, "|---" * 11 + "|", *rows, ""])


def topics_page() -> str:
    lines = ["# Topics", "", "Made from `contracts/topics.py`.", "", "## MQTT", ""]
    lines += [f"- `{up_topic('{device}', channel)}`" for channel in (*LANE_CHANNELS.values(), *UP_MESSAGES)]
    lines += [f"- `{down_topic('{device}', channel)}`" for channel in (DOWN_ACK, DOWN_COMMAND, DOWN_IDENTITY)]
    lines += ["", "## Kafka (key: device name)", "", "| topic | partitions | kept |", "|---|---|---|"]
    for topic in Topics().all():
        kept = (
            "compacted"
            if topic.compacted
            else "until trimmed"
            if topic.retention_ms < 0
            else f"{topic.retention_ms} ms"
        )
        lines.append(f"| `{topic.name}` | {topic.partitions} | {kept} |")
    return "\n".join([*lines, ""])


def views_page() -> str:
    lines = ["# Views for SQL", "", 'Made from `contracts/tables.py`; `fleetstream sql "SELECT …"` reads them.', ""]
    lines += [f"- `{view}({', '.join(columns)})`" for view, columns in VIEWS.items()]
    return "\n".join([*lines, "", f"Roles: {', '.join(f'`{role}`' for role in ROLES)}.", ""])


def signal_numbers() -> str:
    """Published numbers may only grow: a number that is in the file keeps its row."""
    rows = [f' "{s.number}": {json.dumps([s.path, s.unit, s.exponent])}' for s in catalogue()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


PAGES: dict[str, Callable[[], str]] = {
    "docs/reliability-runs.md": reliability_page,
    "docs/reference/signals.md": signals_page,
    "docs/reference/topics.md": topics_page,
    "docs/reference/views.md": views_page,
    "tests/golden/signal_numbers.json": signal_numbers,
    **{f"dashboards/grafana/provisioning/{name}": partial(str, text) for name, text in grafana_files().items()},
}


def main(arguments: list[str]) -> int:
    stale = []
    for name, page in PAGES.items():
        path, text = ROOT / name, page()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if arguments == ["--write"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale and arguments != ["--write"]:
        sys.stderr.write(f"out of date: {', '.join(stale)}; `make fix` renews them\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
