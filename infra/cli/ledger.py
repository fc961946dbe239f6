"""``fleetstream ledger``: what happened to every packet that an agent accepted, from identities.

Exit code 4 when something accepted is neither stored nor accounted for and the fleet has had time to deliver it.
"""

from __future__ import annotations

from typing import Any

import psycopg
import typer
from psycopg.rows import dict_row

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.errors import SetupError
from infra.rooms import reader_dsn

EXIT_MISSING = 4

QUERY = """
SELECT tenant, device, boot_epoch, accepted_packets, stored_packets, stored_samples, duplicates_suppressed,
       dropped_packets, quarantined_packets, dead_lettered_packets,
       (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(missing) AS r) AS missing_packets,
       missing::text AS missing, oldest_unacked_ms, reported_at
FROM ledger WHERE %(device)s::text IS NULL OR device = %(device)s::text
ORDER BY tenant, device, boot_epoch
"""
COLUMNS = (
    "device", "boot_epoch", "accepted_packets", "stored_packets", "duplicates_suppressed", "dropped_packets",
    "quarantined_packets", "dead_lettered_packets", "missing_packets", "missing",
)  # fmt: skip
SUMS = COLUMNS[2:9]

app = typer.Typer()


@app.command(epilog="Example: fleetstream ledger --device car-001 --json")
def ledger(
    device: str | None = typer.Option(None, "--device", help="One device only."),
    settled: bool = typer.Option(False, "--settled", help="Treat what is on its way as missing (exit code 4)."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Per device and boot epoch: accepted, stored, suppressed, dropped, set aside, missing."""
    rows = read_ledger(reader_dsn(open_stack(load_settings())), device)
    total = totals(rows)
    if as_json:
        print_json({"devices": rows, "total": total})
    else:
        shown = [[_short(row[name]) for name in COLUMNS] for row in rows]
        print_table(list(COLUMNS), [*shown, ["total", "", *(total[name] for name in SUMS), ""]])
    if settled and total["missing_packets"]:
        raise typer.Exit(EXIT_MISSING)


def read_ledger(dsn: str, device: str | None = None) -> list[dict[str, Any]]:
    """Rows of the ledger view. Raises SetupError when the store does not answer."""
    try:
        with psycopg.connect(dsn, row_factory=dict_row) as connection:
            return list(connection.execute(QUERY, {"device": device}))
    except psycopg.OperationalError as error:
        raise SetupError(
            f"The store does not answer; nothing is lost; `fleetstream status` tells why ({error})"
        ) from error


def totals(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(int(row[name] or 0) for row in rows) for name in SUMS}


def _short(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
