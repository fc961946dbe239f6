"""``fleetstream key``: API keys, shown once, stored hashed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import typer

from api.keys import ROLES, NewKey, new_key
from contracts.names import check_name
from contracts.tables import ROLE_SINK
from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json, print_table
from infra.errors import SetupError

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Make, list and revoke API keys."""


@app.command("create", epilog="Example: fleetstream key create --tenant north --role operator --label 'night shift'")
def create(
    tenant: str = typer.Option(..., help="Whose data the key opens; the tenant exists already."),
    role: str = typer.Option("operator", help=f"One of {', '.join(ROLES)}."),
    label: str = typer.Option("", help="What it is for."),
    days: int = typer.Option(365, min=1, help="Days until it expires."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Make a key and print it; it cannot be shown again."""
    stack = open_stack(load_settings())
    with psycopg.connect(stack.dsn(ROLE_SINK)) as connection:
        key = make_key(connection, tenant, role, label, datetime.now(UTC) + timedelta(days=days))
    if as_json:
        print_json({"key_id": key.key_id, "key": key.text, "tenant": tenant, "role": role})
    else:
        typer.echo(key.text)


@app.command("list", epilog="Example: fleetstream key list --json")
def list_keys(as_json: bool = JSON_OPTION) -> None:
    """Which keys there are, without their secrets."""
    columns = ["key_id", "tenant", "role", "label", "created_at", "expires_at", "revoked_at"]
    stack = open_stack(load_settings())
    with psycopg.connect(stack.dsn(ROLE_SINK)) as connection:
        rows = connection.execute(
            "SELECT key_id, name, role, label, created_at, expires_at, revoked_at"
            " FROM api_keys JOIN tenants USING (tenant_id) ORDER BY api_keys.created_at"
        ).fetchall()
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, [list(row) for row in rows])


@app.command("revoke", epilog="Example: fleetstream key revoke 0123456789abcdef")
def revoke(key_id: str = typer.Argument(..., help="The part between the two underscores.")) -> None:
    """Make a key useless within seconds."""
    stack = open_stack(load_settings())
    with psycopg.connect(stack.dsn(ROLE_SINK)) as connection:
        done = connection.execute(
            "UPDATE api_keys SET revoked_at = now() WHERE key_id = %s AND revoked_at IS NULL", (key_id,)
        )
        if not done.rowcount:
            raise SetupError(f"There is no key {key_id} in use; `fleetstream key list` shows them")
    typer.echo(f"revoked {key_id}")


def make_key(
    connection: psycopg.Connection[Any], tenant: str, role: str, label: str, expires_at: datetime | None
) -> NewKey:
    """Store the hash of a new key. Raises SetupError for an unknown tenant or role."""
    check_name("tenant", tenant)
    if role not in ROLES:
        raise SetupError(f"{role!r} is no role; take one of {', '.join(ROLES)}")
    key = new_key()
    done = connection.execute(
        "INSERT INTO api_keys (key_id, key_sha256, tenant_id, role, label, expires_at)"
        " SELECT %s, %s, tenant_id, %s, %s, %s FROM tenants WHERE name = %s",
        (key.key_id, key.sha256, role, label, expires_at, tenant),
    )
    if not done.rowcount:
        raise SetupError(f"There is no tenant {tenant}; `fleetstream device enrol` makes one with its first device")
    return key
