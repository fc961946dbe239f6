"""What all recorded runs of the fault harness come to: docs/reliability.jsonl as a page. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

PROMISES = ("lost", "skipped", "doubled", "wrong_device", "acked_not_stored", "acked_not_in_log", "unexplained")
COLUMNS = ("kills", "accepted", "stored", "set aside", "dropped, reported", "recovery p95")


def page(lines: str) -> str:
    """Markdown of a file with one JSON object per run; an empty one gives a page that says so."""
    runs = [json.loads(line) for line in lines.splitlines() if line.strip()]
    text = [
        "# Runs of the fault harness",
        "",
        "Made from `docs/reliability.jsonl`, one line per run, failed ones too.",
        "",
    ]
    if not runs:
        return "\n".join([*text, "No run is recorded.", ""])
    return "\n".join([*text, *_totals(runs), "", *_table(runs), "", *_kinds(runs), ""])


def _totals(runs: Sequence[dict[str, Any]]) -> list[str]:
    good = [run for run in runs if run["ok"]]
    good_seeds, good_kills = len({run["seed"] for run in good}), sum(run["kills"] for run in good)
    sums = {name: sum(run.get(name, 0) for run in runs) for name in ("kills", "accepted", "log_records")}
    counts = ", ".join(f"{name} {sum(run.get(name, 0) for run in runs)}" for name in PROMISES)
    within = ", ".join(f"{name} {sum(run.get(name, 0) for run in good)}" for name in PROMISES)
    return [
        f"{len(runs)} runs of {len({run['seed'] for run in runs})} seeds, {sums['kills']:,} kills, "
        f"{sums['accepted']:,} packets accepted, {sums['log_records']:,} records in the log.",
        "",
        f"Over all runs: {counts}.",
        "",
        f"{len(good)} runs of {good_seeds} seeds with {good_kills:,} kills are `ok`; over these: {within}.",
    ]


def _table(runs: Sequence[dict[str, Any]]) -> list[str]:
    rows = []
    for run in runs:
        p95 = run.get("recovery_s_p95")
        cells = [
            run["seed"], run.get("commit", "–"), *(run.get(name, 0) for name in ("kills", "accepted", "stored")),
            run.get("set_aside", 0), run.get("dropped_reported", 0), "–" if p95 is None else f"{p95} s",
            *(run.get(name, 0) for name in PROMISES), "yes" if run["ok"] else "no",
        ]  # fmt: skip
        rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    head = ["seed", "commit", *COLUMNS, *(name.replace("_", " ") for name in PROMISES), "ok"]
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *rows]


def _kinds(runs: Sequence[dict[str, Any]]) -> list[str]:
    kinds: Counter[str] = Counter()
    for run in runs:
        kinds.update(run.get("faults", {}))
    listed = ", ".join(f"{name} {count}" for name, count in sorted(kinds.items()))
    return [f"Faults carried out, {len(kinds)} kinds (one `kill` may have several victims): {listed}."]
