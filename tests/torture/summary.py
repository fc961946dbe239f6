"""A run as one JSON object: the harness's last line, and a line of docs/reliability.jsonl."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.torture.arena import Arena
from tests.torture.checker import PARTLY, Verdict
from tests.torture.run import Outcome, noisy_others_ms

SHOWN = 5
ROOT = Path(__file__).parents[2]


def summary(seed: int, arena: Arena, outcome: Outcome) -> dict[str, Any]:
    """Counts are packets. ``ok``: nothing offends, everything recovered, nobody ended by himself."""
    verdict, case = outcome.verdict, outcome.case
    if verdict is None or case is None:
        return {"seed": seed, "ok": False, "interrupted": True}
    exits = [line for fleet in (*arena.fleets.values(), *arena.images) for line in fleet.exits]
    troubles = [*arena.troubles, *outcome.not_recovered, *exits]
    aside = {(one.device, one.sha256) for one in case.aside if one.reason != PARTLY}
    heartbeats = {(run[0], digest) for digest, run in case.heartbeats.items()}
    times = outcome.times_s
    offences = _offences(verdict)
    result: dict[str, Any] = {
        "seed": seed,
        "seconds": round(outcome.seconds, 1),
        "kills": arena.kills,
        "kills_skipped": arena.skipped_kills,
        "faults": dict(sorted(outcome.faults.items())),
        "accepted": sum(len(digests) for digests in case.accepted.values()),
        "stored": len({(row.identity, row.sha256) for row in case.stored}),
        "set_aside": len(aside - heartbeats),
        "heartbeats_refused": len(aside & heartbeats),
        "dropped_reported": sum(last - first + 1 for _, _, first, last in case.gaps),
        "log_records": len(case.log),
        "lost": len(verdict.lost),
        "skipped": len(verdict.skipped),
        "doubled": len(verdict.doubled),
        "wrong_device": len(verdict.wrong_device),
        "acked_not_stored": len(verdict.acked_not_stored),
        "acked_not_in_log": len(verdict.acked_not_in_log),
        "unexplained": verdict.unexplained + len(troubles),
        "pubacks": sum(tap.pubacks for tap in arena.taps.values()),
        "recovery_s_p50": _part(times, 0.5),
        "recovery_s_p95": _part(times, 0.95),
        "recovery_s_max": _part(times, 1.0),
        "fresh_s": round(arena.fresh_s, 1),
        "wild_others_ms_p95": noisy_others_ms(arena),
        "ok": verdict.innocent and not troubles,
        "commit": commit(),
        "load": round(os.getloadavg()[1], 1),
    }
    if not result["ok"]:
        result["offences"] = offences
        result["troubles"] = troubles[:SHOWN]
    return result


def _offences(verdict: Verdict) -> dict[str, list[str]]:
    found = {name: getattr(verdict, name) for name in verdict.__slots__}
    return {name: list(lines[:SHOWN]) for name, lines in found.items() if lines}


def _part(times: Sequence[float], part: float) -> float | None:
    return round(times[min(len(times) - 1, int(part * len(times)))], 1) if times else None


def commit() -> str:
    """Short name of what ran; a + tells that files differ from it, other than the lines that runs themselves add."""
    name = _git("rev-parse", "--short=7", "HEAD").stdout.strip() or "unknown"
    return name + "+" * (_git("diff", "--quiet", "HEAD", "--", ".", ":!docs/*.jsonl").returncode == 1)


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
