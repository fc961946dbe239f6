"""``fleetstream ledger``: what happened to every packet that an agent accepted, from identities.

Exit code 4 when a gap is open: something accepted is neither stored nor accounted for, for longer than the gap watch's
limit. With ``--settled`` as soon as anything is missing, also what devices still hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
import typer
from psycopg.rows import dict_row

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.errors import SetupError
from infra.rooms import reader_dsn

EXIT_MISSING = 4
SHOWN_RANGES = 6

LEDGER = """
SELECT tenant, device, boot_epoch, accepted_packets, accepted_samples, confirmed_packets, held_packets, stored_packets,
       stored_samples, evidence_packets, duplicates_suppressed, dropped_packets, dropped_samples, quarantined_packets,
       dead_lettered_packets, numbers_in(missing) AS missing_packets, missing::text AS missing,
       CASE WHEN on_its_way IS NOT NULL THEN numbers_in(on_its_way) END AS on_its_way_packets,
       on_its_way::text AS on_its_way, quarantined_packets + dead_lettered_packets AS aside_packets,
       (extract(epoch FROM now() - heard_at) * 1000)::bigint AS heard_ms,
       not_accepted_samples, oldest_waiting_ms, oldest_unacked_ms, reported_at, heard_at
FROM ledger WHERE %(device)s::text IS NULL OR device = %(device)s::text
ORDER BY tenant, device, boot_epoch
"""
DROPS = """
SELECT tenant, device, boot_epoch, first_seq, last_seq, reason, class, packets, samples, reported_at FROM drops
WHERE %(device)s::text IS NULL OR device = %(device)s::text ORDER BY tenant, device, boot_epoch, first_seq
"""
GAPS = """
SELECT tenant, device, boot_epoch, state, missing_packets, missing::text AS missing, first_seq, last_seq, since,
       opened_at, ended_at, (extract(epoch FROM coalesce(ended_at, now()) - since) * 1000)::bigint AS stood_ms
FROM gaps WHERE (%(device)s::text IS NULL OR device = %(device)s::text) AND (ended_at IS NULL OR %(ended)s)
ORDER BY tenant, device, boot_epoch, first_seq
"""
COLUMNS = {
    "device": "device", "boot_epoch": "boot", "accepted_packets": "accepted", "confirmed_packets": "confirmed",
    "stored_packets": "stored", "missing_packets": "missing", "duplicates_suppressed": "repeats",
    "dropped_packets": "dropped", "aside_packets": "set aside", "oldest_waiting_ms": "oldest", "heard_ms": "heard",
}  # fmt: skip
"""Of the table: what the row says, and how people read it."""
SUMS = (
    "accepted_packets", "confirmed_packets", "held_packets", "stored_packets", "stored_samples", "evidence_packets",
    "duplicates_suppressed", "dropped_packets", "quarantined_packets", "dead_lettered_packets", "aside_packets",
    "missing_packets", "on_its_way_packets", "not_accepted_samples",
)  # fmt: skip

app = typer.Typer()


@app.command(epilog="Example: fleetstream ledger --device car-001 --missing")
def ledger(
    device: str | None = typer.Option(None, "--device", help="One device only."),
    missing: bool = typer.Option(
        False, "--missing", help="Only what is missing or dropped: ranges, where, since when."
    ),
    settled: bool = typer.Option(
        False, "--settled", help="Exit 4 also for what is missing for a moment or still held by devices."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Per device and boot epoch: accepted, confirmed, stored, suppressed, dropped, set aside, missing.

    Exit code 4 when a gap is open (`--missing` shows it).
    """
    rows, drops, gaps = read_all(reader_dsn(open_stack(load_settings())), device, ended=as_json and not missing)
    total = totals(rows)
    shown = [row for row in rows if row["missing_packets"]] if missing else rows
    if as_json:
        print_json({"devices": shown, "total": total, "drops": drops, "gaps": gaps})
    elif missing:
        _show_missing(shown, drops, gaps)
    else:
        lines = [[_cell(name, row[name]) for name in COLUMNS] for row in rows]
        sums = [_cell(name, total.get(name, "")) for name in COLUMNS]
        print_table(list(COLUMNS.values()), [*lines, ["total", *sums[1:]]])
        typer.echo(
            f"packets; – nobody has said it. On devices: {_known(total['held_packets'])} packets. "
            f"Never accepted: {_known(total['not_accepted_samples'])} samples. Which, where, since when: --missing"
        )
    if any(gap["state"] == "open" for gap in gaps) or (settled and total["missing_packets"]):
        raise typer.Exit(EXIT_MISSING)


def read_all(
    dsn: str, device: str | None = None, *, ended: bool = False
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """(ledger, drops, gaps) in one snapshot; ``ended`` gaps too. Raises SetupError when the store does not answer."""
    try:
        with psycopg.connect(dsn, row_factory=dict_row) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            asked = {"device": device, "ended": ended}
            ledger, drops, gaps = (connection.execute(query, asked).fetchall() for query in (LEDGER, DROPS, GAPS))
            return ledger, drops, gaps
    except psycopg.OperationalError as error:
        raise SetupError(
            f"The store does not answer; nothing is lost; `fleetstream status` tells why ({error})"
        ) from error


def totals(rows: list[dict[str, Any]]) -> dict[str, int | None]:
    """Sums; None where no row says anything."""
    known = {name: [int(row[name]) for row in rows if row[name] is not None] for name in SUMS}
    return {name: sum(values) if values or not rows else None for name, values in known.items()}


def age(ms: int | None) -> str:
    """An age as people say it, – when nobody knows it.

    >>> age(None), age(900), age(90_000), age(7_200_000), age(300_000_000)
    ('–', '0.9 s', '90 s', '120 min', '83 h')
    """
    if ms is None:
        return "–"
    for unit, size_ms, most in (("s", 1_000, 120), ("min", 60_000, 180), ("h", 3_600_000, 96)):
        if ms < size_ms * most:
            return f"{ms / size_ms:.1f} {unit}" if ms < 10_000 else f"{round(ms / size_ms)} {unit}"
    return f"{round(ms / 86_400_000)} d"


def _show_missing(rows: list[dict[str, Any]], drops: list[dict[str, Any]], gaps: list[dict[str, Any]]) -> None:
    if rows:
        print_table(
            ["device", "boot", "missing", "which", "left the device", "on device", "oldest waiting"],
            [
                [
                    row["device"], row["boot_epoch"], row["missing_packets"], _ranges(row["missing"]),
                    _known(row["on_its_way_packets"]), _known(row["held_packets"]), age(row["oldest_waiting_ms"]),
                ]
                for row in rows
            ],
        )  # fmt: skip
    else:
        typer.echo("nothing is missing")
    if gaps:
        typer.echo("\ngaps")
        print_table(
            ["device", "boot", "state", "missing", "which", "since", "for"],
            [
                [
                    gap["device"], gap["boot_epoch"], gap["state"], gap["missing_packets"], _ranges(gap["missing"]),
                    _moment(gap["since"]), age(gap["stood_ms"]),
                ]
                for gap in gaps
            ],
        )  # fmt: skip
    if drops:
        typer.echo("\ndropped by agents")
        print_table(
            ["device", "boot", "numbers", "reason", "class", "packets", "samples", "reported"],
            [
                [
                    one["device"], one["boot_epoch"], f"{one['first_seq']}-{one['last_seq']}", one["reason"],
                    one["class"], _known(one["packets"]), _known(one["samples"]), _moment(one["reported_at"]),
                ]
                for one in drops
            ],
        )  # fmt: skip


def _cell(name: str, value: Any) -> str:
    if value == "":
        return ""
    if name == "heard_ms":
        return "never" if value is None else f"{age(max(0, value))} ago"
    return age(value) if name == "oldest_waiting_ms" else _known(value)


def _known(value: Any) -> str:
    return "–" if value is None else str(value)


def _moment(value: Any) -> str:
    return "never" if value is None else value.strftime("%Y-%m-%d %H:%M:%SZ")


def _ranges(multirange: str) -> str:
    """``{[5,8),[11,12)}`` as people write it: ``5-7, 11``."""
    parts = _pairs(multirange)
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in parts[:SHOWN_RANGES]]
    return ", ".join(texts) + (f" and {len(parts) - SHOWN_RANGES} more" if len(parts) > SHOWN_RANGES else "")


def _pairs(multirange: str) -> list[tuple[int, int]]:
    inner: Iterable[str] = multirange.strip("{}").split("),[") if len(multirange) > 2 else ()
    ends = (text.strip("[)").split(",") for text in inner)
    return [(int(first), int(last) - 1) for first, last in ends]
