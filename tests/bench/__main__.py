"""``make bench``: run every script (or those named), write docs/benchmarks.md, print one JSON object last.

Each script is a module ``tests.bench.bench_NAME`` with ``run() -> Report``. It runs in a process of its own, so that
one script's memory and warm caches are not another's.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.figures import Figure, Report, machine, table

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "docs" / "benchmarks.json"
PAGE = HERE.parents[1] / "docs" / "benchmarks.md"


def names() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def run_one(name: str) -> int:
    """In the child: run the script and print its report as JSON on the last line."""
    before = machine()
    report: Report = importlib.import_module(f"tests.bench.bench_{name}").run()
    rows = [
        {**f.as_json(), "name": f.name, "values": f.runs, "at_least": f.at_least, "conditions": f.conditions}
        for f in report.figures
    ]
    before["load_at_end"] = machine()["load_at_start"]
    print(json.dumps({"machine": before, "title": report.title, "notes": report.notes, "figures": rows}))
    return 0


def run_all(wanted: list[str]) -> int:
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    failed = []
    for name in wanted:
        print(f"== {name}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench", "--one", name], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            failed.append(name)
            continue
        results[name] = {
            **json.loads(done.stdout.strip().splitlines()[-1]),
            "read": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        }
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(page(results))
    summary = {
        f"{name}: {row['name']}": {key: row[key] for key in ("unit", "min", "median", "max", "target", "met")}
        for name in wanted
        if name in results
        for row in results[name]["figures"]
    }
    print(json.dumps({"machine": machine(), "failed": failed, "figures": summary}))
    return 1 if failed else 0


def page(results: dict[str, Any]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench`; everything on one machine, whose neighbours may be noisy.",
        "",
    ]
    for name, result in sorted(results.items()):
        conditions = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
        lines += [f"## {result['title']}", "", f"`make bench ARGS={name}`, read {result['read']}; {conditions}.", ""]
        lines += table([_figure(row) for row in result["figures"]])
        lines += ["", *[f"- {note}" for note in result["notes"]], ""]
    return "\n".join(lines)


def _figure(row: dict[str, Any]) -> Figure:
    return Figure(
        str(row["name"]),
        str(row["unit"]),
        tuple(row["values"]),
        row["target"],
        bool(row["at_least"]),
        str(row["conditions"]),
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    raise SystemExit(run_one(arguments[1]) if arguments[:1] == ["--one"] else run_all(arguments or names()))
