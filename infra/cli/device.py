"""``fleetstream device``: enrol and revoke devices."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import psycopg
import typer

from contracts.names import check_device
from contracts.tables import ROLE_SINK
from infra.cli.common import JSON_OPTION, authority, load_settings, open_stack, print_json
from infra.enrol import Enrolment, enrol, revoke

app = typer.Typer(help="Enrol and revoke devices.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Enrol and revoke devices."""


@app.command("enrol", epilog="Example: fleetstream device enrol van-7 --tenant north --asset 'Van 7' --asset-kind car")
def enrol_command(
    device: str = typer.Argument(..., help="Name of the device: letters, digits, _ and -, at most 64."),
    tenant: str = typer.Option(..., help="Who owns it; created when new."),
    asset: str = typer.Option(..., help="What it measures; created when new."),
    asset_kind: str = typer.Option("other", help="car, truck, turbine, pump, process or other."),
    kind: str = typer.Option("device", help="device, simulated or recording (exempt from lateness limits)."),
    since: datetime | None = typer.Option(None, help="When the device began to measure this asset (UTC)."),
    place: str | None = typer.Option(None, help="Where a standing asset is, as LATITUDE,LONGITUDE in degrees."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Register a device for a tenant and asset and issue its certificate."""
    settings = load_settings()
    check_device(device)
    stack = open_stack(settings)
    dated = since.replace(tzinfo=UTC) if since else None
    with psycopg.connect(stack.dsn(ROLE_SINK)) as connection:
        registration = enrol(connection, [Enrolment(device, tenant, asset, asset_kind, kind, dated, _place(place))])[0]
    credentials = authority(settings).client(device)
    if as_json:
        files = {name: str(path) for name, path in asdict(credentials).items()}
        print_json({**asdict(registration), **files, "mqtt": f"127.0.0.1:{stack.ports['mqtt']}"})
    else:
        typer.echo(f"enrolled {device} as key {registration.device_key} of tenant {tenant}")
        typer.echo(f"certificate {credentials.certificate}\nkey {credentials.key}\nauthority {credentials.ca}")


def _place(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        latitude, longitude = (float(part) for part in text.split(","))
    except ValueError:
        told = "a place is LATITUDE,LONGITUDE in degrees, like 49.01,8.40"
        raise typer.BadParameter(told, param_hint="--place") from None
    return latitude, longitude


@app.command("revoke", epilog="Example: fleetstream device revoke van-7")
def revoke_command(device: str = typer.Argument(..., help="Name of the device.")) -> None:
    """Take a device out of the registry; its data stays, its packets wait in its own spool."""
    stack = open_stack(load_settings())
    with psycopg.connect(stack.dsn(ROLE_SINK)) as connection:
        revoke(connection, device)
    typer.echo(f"revoked {device}")
