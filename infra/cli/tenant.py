"""``fleetstream tenant``: a tenant's own read-only SQL login."""

from __future__ import annotations

import typer
from psycopg.conninfo import make_conninfo

from infra.cli.common import JSON_OPTION, load_settings, open_stack, print_json
from infra.tenants import drop_sql_login, make_sql_login

app = typer.Typer(help="Give tenants their own SQL login.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Give tenants their own SQL login."""


@app.command("sql-login", epilog="Example: fleetstream tenant sql-login north --json")
def sql_login(
    tenant: str = typer.Argument(..., help="Whose rows the login sees; the tenant exists already."),
    revoke: bool = typer.Option(False, "--revoke", help="Take the login away and end its sessions."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Make a read-only login for SQL and Grafana, or give it a new password; it is shown once."""
    settings = load_settings()
    stack = open_stack(settings)
    if revoke:
        login = drop_sql_login(stack.superuser_dsn, settings.schema_name, tenant)
        if as_json:
            print_json({"login": login, "tenant": tenant, "revoked": True})
        else:
            typer.echo(f"revoked {login}")
        return
    made = make_sql_login(stack.superuser_dsn, settings.schema_name, tenant)
    dsn = make_conninfo(stack.superuser_dsn, user=made.login, password=made.password)
    if as_json:
        print_json({"login": made.login, "password": made.password, "tenant": tenant, "dsn": dsn})
    else:
        typer.echo(dsn)
