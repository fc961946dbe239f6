"""``fleetstream models``: train detectors from the archive, compare them, say which one judges the stream.

Exit codes: 0 done; 1 refused or failed, with the reason, and nothing was changed; 4 the candidate is worse.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import typer

from anomaly.errors import BadParameters
from anomaly.models.recipe import RECIPES, recipe_named
from contracts.model_event import ModelEvent
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.modelling import registry_of, spark_of

EXIT_FAILED, EXIT_WORSE = 1, 4
SHORT = 12
COLUMNS = ("model", "name", "asset_kind", "state", "file", "effective_at", "trained_from", "held_back_from", "devices",
           "training_rows", "false_alarms", "findings", "drifting")  # fmt: skip
SINCE = typer.Option(None, "--since", help="Event time (UTC) from which on.")
UNTIL = typer.Option(None, "--until", help="Event time (UTC) up to which.")
MODEL = typer.Argument(..., help="Its SHA-256, or the first digits of it, as `models list` tells it.")

app = typer.Typer(help="Trained models: which there are, which one judges.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Trained models: which there are, which one judges."""


@app.command("list", epilog="Example: fleetstream models list --json")
def list_command(
    name: str | None = typer.Option(None, "--name", help="Of this recipe only."), as_json: bool = JSON_OPTION
) -> None:
    """Every model: its state, whether its file is sound, how many devices have left the world it was trained in."""
    registry = registry_of(open_stack(load_settings()))
    rows = [{**row, "file": registry.shelf.state(row["model"])} for row in registry.store.rows(name)]
    known = {row["model"] for row in registry.store.rows()}
    strays = [one for one in registry.shelf.names() if one not in known]
    if as_json:
        print_json({"models": rows, "files_without_a_row": strays})
        return
    print_table(list(COLUMNS), [[_short(row[column]) for column in COLUMNS] for row in rows])
    if not rows:
        typer.echo(f"no models yet; `fleetstream models train` makes some of: {', '.join(RECIPES)}")
    for one in strays:
        typer.echo(f"{one[:SHORT]}: a file without a row; `fleetstream models adopt` makes it a candidate", err=True)


@app.command("show", epilog="Example: fleetstream models show 3fa9c1")
def show_command(model: str = MODEL, as_json: bool = JSON_OPTION) -> None:
    """One model: what it was trained on, its score, every promotion and rollback of its recipe."""
    registry = registry_of(open_stack(load_settings()))
    row = registry.store.one(model)
    told = {**row, "file": registry.shelf.state(row["model"]), "history": registry.store.history(row["name"])}
    if as_json:
        print_json(told)
        return
    for key, value in told.items():
        if key != "history":
            typer.echo(f"{key}: {'' if value is None else value}")
    columns = ["asked_at", "action", "model", "replaced", "effective_at", "asked_by", "anyway"]
    print_table(columns, [[_short(one[column]) for column in columns] for one in told["history"]])


@app.command("train", epilog="Example: fleetstream models train turbine-power --until 2026-11-01")
def train_command(
    recipes: list[str] | None = typer.Argument(
        None, help="Recipes; default: all that there is something for. Of: " + ", ".join(RECIPES)
    ),
    seed: int = typer.Option(1, min=0, help="Which stretches are drawn; the same seed and archive, the same model."),
    since: datetime | None = SINCE,
    until: datetime | None = UNTIL,
    held_back: float = typer.Option(0.3, min=0.05, max=0.9, help="Share of the span, its end, kept for comparing."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Train from the archive; what comes out is a candidate that judges nothing yet."""
    from stream_jobs.models.workshop import Asked, NothingToTrain, told

    stack = open_stack(load_settings())
    registry, made = registry_of(stack), []
    chosen = [recipe_named(name) for name in recipes or RECIPES]
    with spark_of(stack, registry) as session:
        for recipe in chosen:
            wait_ms = registry.settings.detect_wait_ms
            asked = Asked(recipe, seed, wait_ms, _ms(since), _ms(until), held_back)
            try:
                name, model, new = registry.train(session, asked)
            except (NothingToTrain, BadParameters) as error:
                if recipes:
                    raise
                typer.echo(f"{recipe.name}: {error}", err=True)
                continue
            made.append({
                "model": name, "name": recipe.name, "new": new, "devices": model.training.devices,
                "rows": model.training.rows, "input_sha256": model.training.input_sha256, "score": told(model.score),
            })  # fmt: skip
            if not as_json:
                known = "" if new else ", known already"
                typer.echo(
                    f"{recipe.name}: {name} ({model.training.rows} rows of {model.training.devices} devices{known})"
                )
    if as_json:
        print_json(made)
    if not made:
        raise typer.Exit(EXIT_FAILED)


@app.command("compare", epilog="Example: fleetstream models compare 3fa9c1")
def compare_command(
    model: str = MODEL, since: datetime | None = SINCE, until: datetime | None = UNTIL, as_json: bool = JSON_OPTION
) -> None:
    """A candidate and the live model on the same held-back readings: false alarms, injected faults and their delay."""
    stack = open_stack(load_settings())
    registry = registry_of(stack)
    with spark_of(stack, registry) as session:
        compared = registry.compare(session, model, _ms(since), _ms(until))
    told = compared.told()
    if as_json:
        print_json(told)
    else:
        _print_scores(told)
    if compared.worse:
        raise typer.Exit(EXIT_WORSE)


@app.command("promote", epilog="Example: fleetstream models promote 3fa9c1")
def promote_command(
    model: str = MODEL,
    anyway: str | None = typer.Option(None, "--anyway", help="Why it is promoted though it is worse; is kept."),
    since: datetime | None = typer.Option(
        None, "--since", help="Event time (UTC) from which it judges; detection then begins anew. Default: soon."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Compare, and make it the one that judges; refused when it is worse."""
    stack = open_stack(load_settings())
    registry = registry_of(stack)
    with spark_of(stack, registry) as session:
        compared = registry.compare(session, model)
        if compared.worse and not anyway:
            if as_json:
                print_json({"promoted": False, **compared.told()})
            else:
                _print_scores(compared.told())
                typer.echo("nothing was changed; --anyway REASON promotes it all the same", err=True)
            raise typer.Exit(EXIT_WORSE)
        event = registry.promote(compared, anyway, _ms(since))
    if as_json:
        print_json({"promoted": True, "effective_at": _moment(event.effective_ms), **compared.told()})
    else:
        _print_scores(compared.told())
        _print_event(event)


@app.command("rollback", epilog="Example: fleetstream models rollback turbine-power")
def rollback_command(name: str = typer.Argument(..., help="Name of the recipe."), as_json: bool = JSON_OPTION) -> None:
    """The model that was live before is live again; without one, none is."""
    event = registry_of(open_stack(load_settings())).rollback(name)
    if as_json:
        print_json({"model": event.model, "replaced": event.replaced, "effective_at": _moment(event.effective_ms)})
    else:
        _print_event(event)


@app.command("adopt", epilog="Example: fleetstream models adopt")
def adopt_command(as_json: bool = JSON_OPTION) -> None:
    """Make candidates of sound files that no row names (a crash came between, or the store was lost)."""
    names = registry_of(open_stack(load_settings())).adopt()
    if as_json:
        print_json(names)
    else:
        typer.echo("\n".join(names) or "every file has its row")


def _ms(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) == 64:
        return value[:SHORT]
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if isinstance(value, datetime) else value


def _print_event(event: ModelEvent) -> None:
    now = "none" if event.model is None else event.model[:SHORT]
    before = "none" if event.replaced is None else event.replaced[:SHORT]
    typer.echo(f"{event.name}: {now} judges event times from {_moment(event.effective_ms)} on, {before} those before")


def _print_scores(told: Any) -> None:
    rows: list[list[Any]] = []
    sides = [("candidate", told["candidate"], told["candidate_score"]), ("live", told["live"], told["live_score"])]
    for side, name, score in sides:
        if score is None:
            continue
        rate, upper = score["false_alarms_per_device_month"], score["upper_95_per_device_month"]
        bound = "" if rate is None else f"{rate:.2f} (at most {upper:.0f})"
        rows.append([side, _short(name), "false alarms per device-month", score["false_alarms"], bound])
        for fault, one in score["faults"].items():
            delay = one["median_delay_s"]
            late = "" if delay is None else f"after {delay:.0f} s"
            rows.append([side, _short(name), fault, f"{one['found']} of {one['tried']}", late])
    print_table(["", "model", "what", "found", ""], rows)
    typer.echo(f"held back: {_moment(told['from_ms'])} to {_moment(told['until_ms'])}")
    for reason in told["worse"]:
        typer.echo(f"worse: {reason}")
