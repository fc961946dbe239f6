"""``fleetstream sql``: read-only SQL on the stable views."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import psycopg
import typer

from infra.cli.common import load_settings, open_stack, print_table
from infra.errors import SetupError
from infra.rooms import reader_dsn

TABLE_ROWS = 10_000
"""A table on a terminal stops here; --csv and --json stream without a limit."""

app = typer.Typer()


@app.command(epilog="""Example: fleetstream sql "SELECT asset, signal, value FROM latest" --csv""")
def sql(
    query: str = typer.Argument(..., help="One SELECT, or - to read it from stdin."),
    as_csv: bool = typer.Option(False, "--csv", help="Comma-separated values with a header line."),
    as_json: bool = typer.Option(False, "--json", help="One JSON array of objects."),
    timeout_s: int = typer.Option(300, "--timeout", min=1, help="Seconds until the query is given up."),
) -> None:
    """Run one query as the read-only role; times are UTC."""
    stack = open_stack(load_settings())
    text = sys.stdin.read() if query == "-" else query
    try:
        with psycopg.connect(reader_dsn(stack), autocommit=True) as connection, connection.cursor() as cursor:
            connection.execute("SET default_transaction_read_only = on")
            connection.execute("SELECT set_config('statement_timeout', %s, false)", (f"{timeout_s}s",))
            connection.execute("SET timezone = 'UTC'")
            columns = _columns(connection, text)
            _print(columns, cursor.stream(text.encode()), as_csv=as_csv, as_json=as_json)
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error).strip() or type(error).__name__
        raise SetupError(f"The query was refused: {said}") from error


def _columns(connection: psycopg.Connection[Any], text: str) -> list[str]:
    """Names of the result's columns before its first row, so that an empty result has a header too."""
    connection.pgconn.prepare(b"described", text.encode())
    described = connection.pgconn.describe_prepared(b"described")
    names = (described.fname(number) for number in range(described.nfields))
    return [name.decode() for name in names if name is not None]


def _print(columns: list[str], rows: Iterator[Sequence[Any]], *, as_csv: bool, as_json: bool) -> None:
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([plain_text(value) for value in row] for row in rows)
    elif as_json:
        _print_array(columns, rows)
    else:
        shown = [[plain_text(value) for value in row] for row in islice(rows, TABLE_ROWS)]
        print_table(columns, shown)
        if next(rows, None) is not None:
            typer.echo(f"only the first {TABLE_ROWS} rows are shown; --csv or --json prints all", err=True)


def _print_array(columns: list[str], rows: Iterator[Sequence[Any]]) -> None:
    """One object per line inside of one array, so that it streams and still is one JSON value."""
    separator = "["
    for row in rows:
        named = dict(zip(columns, map(json_value, row), strict=True))
        sys.stdout.write(separator + json.dumps(named, ensure_ascii=False, allow_nan=False))
        separator = ",\n "
    sys.stdout.write("[]\n" if separator == "[" else "]\n")


def _number(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def plain_text(value: Any) -> str:
    """A value for CSV and tables: ISO 8601 times, hexadecimal bytes, JSON for arrays, '' for NULL."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(json_value(value), ensure_ascii=False)
    return str(json_value(value))


def json_value(value: Any) -> Any:
    """A value that JSON can hold; a decimal that no double equals stays exact, as text."""
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if isinstance(value, dict):
        return {str(key): json_value(one) for key, one in value.items()}
    return value if isinstance(value, str | int | float | None) else str(value)
