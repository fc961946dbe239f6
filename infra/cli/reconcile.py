"""``fleetstream reconcile``: do the agents' accounts, the log and the store agree?

Exit code 1 when something differs and nothing explains it; each difference is named with its numbers or offsets.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from contracts.ranges import Range
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.rooms import reader_dsn

if TYPE_CHECKING:
    from stream_jobs.reconcile import Report, Verdict

EXIT_UNEXPLAINED = 1
COLUMNS = ["verdict", "of", "epoch/partition", "packets", "which", "detail"]
SHOWN_RANGES = 6

app = typer.Typer()


@app.command(epilog="Example: fleetstream reconcile --deep --device car-001")
def reconcile(
    device: str | None = typer.Option(None, "--device", help="Judge one device only; partitions are judged always."),
    deep: bool = typer.Option(False, "--deep", help="Also read the log itself, record by record."),
    wait_s: float = typer.Option(10.0, "--wait", min=0, help="Seconds to let the store catch up with the log."),
    everything: bool = typer.Option(False, "--all", help="Show what is in step, too."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Compare heartbeats, Kafka's offsets and the store; exit 1 on a difference that nothing explains."""
    from stream_jobs.wiring import make_reconciler  # brings Kafka's client along

    settings = load_settings()
    stack = open_stack(settings)
    reconciler = make_reconciler(stack.bootstrap, settings.topic_prefix, reader_dsn(stack))
    report = reconciler.run(device, deep=deep, wait_s=wait_s)
    if as_json:
        verdicts = [{**asdict(one), "explained": one.explained} for one in report.verdicts]
        print_json({**asdict(report), "unexplained": report.unexplained, "verdicts": verdicts})
    else:
        _show(report, everything)
    if report.unexplained:
        raise typer.Exit(EXIT_UNEXPLAINED)


def _show(report: Report, everything: bool) -> None:
    from stream_jobs.reconcile import IN_STEP

    shown = [one for one in report.verdicts if everything or one.verdict != IN_STEP]
    shown.sort(key=lambda one: (one.explained, one.scope, one.name, one.part))
    if shown:
        print_table(COLUMNS, [_row(one) for one in shown])
    in_step = sum(one.verdict == IN_STEP for one in report.verdicts)
    waits = "" if report.caught_up else "; the store has not caught up with the log yet, ask again"
    typer.echo(
        f"{in_step} in step, {len(report.verdicts) - in_step - report.unexplained} explained, "
        f"{report.unexplained} unexplained{waits}"
    )


def _row(one: Verdict) -> list[object]:
    name = one.verdict if one.explained else f"! {one.verdict}"
    return [name, one.name, one.part, one.packets, _ranges(one.ranges), one.detail]


def _ranges(ranges: tuple[Range, ...]) -> str:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:SHOWN_RANGES]]
    return ", ".join(texts) + (f" and {len(ranges) - SHOWN_RANGES} more" if len(ranges) > SHOWN_RANGES else "")
