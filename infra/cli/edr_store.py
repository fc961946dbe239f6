"""``fleetstream edr list | show | export | asides | custody``: what the store holds; records only by the custody log.

Imported by ``infra.cli.edr``; what needs a stack is imported when a command runs: ``verify`` must run without one.
"""

from __future__ import annotations

import asyncio
import getpass
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from contracts.edr import custody
from contracts.edr.custody import BASES, Request
from infra.errors import SetupError

if TYPE_CHECKING:
    from api.custody import Reading
    from infra.rooms import Stack

JSON_OPTION = typer.Option(False, "--json", help="Print JSON instead of words.")
TENANT = typer.Option(..., help="Whose records.")
RECORD = typer.Argument(..., help="SHA-256 of the record, in hexadecimal; `fleetstream edr list` shows them.")
BASIS = typer.Option("", help=f"Legal basis of this read: {', '.join(BASES)}.")
PURPOSE = typer.Option("", help="What it is read for, in words; goes into the custody log.")
REFERENCE = typer.Option("", help="Number or name of the document behind the legal basis.")
EXIT_BROKEN = 1
ASIDES = """
SELECT tenant, device, reason, detail, received_at, set_aside_at, sha256, entry_no FROM edr_asides
WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s ORDER BY aside_id DESC LIMIT 1000"""
Found = TypeVar("Found")

custody_app = typer.Typer(help="Who read what, and do the logs hold?", no_args_is_help=True)


def list_records(tenant: str = TENANT, as_json: bool = JSON_OPTION) -> None:
    """Which records are held, newest first; what they say needs a legal basis."""
    from api.queries import edr

    async def ask(opened: Reading) -> list[dict[str, Any]]:
        return await edr.list_records(opened.connection, 2**62, None, 1_000)

    shown = ("record", "device", "record_no", "event_id", "profile", "source", "trigger", "complete", "locked", "trust",
             "chain", "replaced", "received_at")  # fmt: skip
    rows = [{name: row[name] for name in shown} for row in _read(tenant, _request(custody.LIST), ask)]
    if as_json:
        typer.echo(json.dumps(rows, default=str))
        return
    for row in rows:
        state = "complete" if row["complete"] else "incomplete"
        typer.echo(
            f"{row['record']}  {row['device']} record {row['record_no']}, {row['profile']}, trigger {row['trigger']}, "
            f"{state}{', locked' if row['locked'] else ''}, {row['trust']}, "
            f"received {row['received_at']:%Y-%m-%d %H:%M:%SZ}"
        )
    typer.echo(f"{len(rows)} record(s); this read is in the custody log", err=True)


def list_asides(
    tenant: str | None = typer.Option(None, help="One tenant's only; without it also those of nobody known."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Which records were refused and why, newest first; their bytes are kept aside and never shown as evidence."""
    import psycopg
    from psycopg.rows import dict_row

    from contracts.tables import ROLE_READER

    with psycopg.connect(_stack().dsn(ROLE_READER), row_factory=dict_row) as connection:
        rows = connection.execute(ASIDES, {"tenant": tenant}).fetchall()
    if as_json:
        typer.echo(json.dumps(rows, default=str))
        return
    for row in rows:
        typer.echo(
            f"{row['set_aside_at']:%Y-%m-%d %H:%M:%SZ}  {row['device'] or 'a device not known'}  {row['reason']}: "
            f"{row['detail']}  (bytes {row['sha256'][:16]})"
        )
    typer.echo(f"{len(rows)} refused record(s)", err=True)


def show_record(
    record: str = RECORD, tenant: str = TENANT, basis: str = BASIS, purpose: str = PURPOSE, reference: str = REFERENCE,
    as_json: bool = JSON_OPTION,
) -> None:  # fmt: skip
    """Decode one record: every element with unit, accuracy and mark of its source."""
    from api.edr_records import masked, whole
    from api.queries import edr

    name = _name(record)

    async def ask(opened: Reading) -> Any:
        row = await edr.read_record(opened.connection, name)
        elements = await edr.read_elements(opened.connection, name)
        attachments = await edr.read_attachments(opened.connection, name)
        return row and whole(masked(row, basis), elements, attachments, opened.entry_no)

    found = _read(tenant, _request(custody.SHOW, record, basis, purpose, reference), ask)
    if found is None:
        raise SetupError(f"No record {record} is held for {tenant}; `fleetstream edr list` shows them")
    if as_json:
        typer.echo(found.model_dump_json())
        return
    summary = found.summary
    typer.echo(
        f"{summary.device or 'a device not named'} record {summary.record_no}: {found.profile_title}; {found.notice}"
    )
    typer.echo(f"source {summary.source}, trigger {summary.trigger}, chain {summary.chain}, {summary.trust}, "
               f"custody entry {found.custody_entry}")  # fmt: skip
    for element in found.elements:
        typer.echo(f"  {element.title}: {_value(element)}")


def export_record(
    record: str = RECORD, tenant: str = TENANT,
    out: Path = typer.Option(..., help="The file to write; `fleetstream edr verify` checks it offline."),
    basis: str = BASIS, purpose: str = PURPOSE, reference: str = REFERENCE, as_json: bool = JSON_OPTION,
) -> None:  # fmt: skip
    """Write one record as a signed export."""
    from api.evidence_signer import read_signer
    from api.queries import edr
    from contracts.edr.export import build_export

    name = _name(record)

    async def ask(opened: Reading) -> Any:
        return (
            await edr.read_record(opened.connection, name), await edr.read_capsule(opened.connection, name),
            await edr.read_data(opened.connection, name),
        )  # fmt: skip

    row, capsule, raw = _read(tenant, _request(custody.EXPORT, record, basis, purpose, reference), ask)
    if row is None or capsule is None:
        raise SetupError(f"No record {record} is held for {tenant}; `fleetstream edr list` shows them")
    files = _stack().authority.signer("evidence-export")
    signer = read_signer(files.key, files.certificate)
    if signer is None:
        raise SetupError("There is no key to sign the export with; nothing was written")
    issued_ms = int(datetime.now(UTC).timestamp() * 1_000)
    data = build_export(
        [(row["record_no"], capsule)], signer, bytes(row["recorder_id"]), issued_ms, None, "selection",
        [bytes(one["data"]) for one in raw],
    )  # fmt: skip
    try:
        out.write_bytes(data)
    except OSError as error:
        raise SetupError(f"{out} cannot be written ({error.strerror}); name another file with --out") from error
    told = {"file": str(out), "bytes": len(data), "record": record, "trust": row["trust"], "attachments": len(raw)}
    typer.echo(
        json.dumps(told) if as_json else f"{out}: {len(data)} bytes; check it with `fleetstream edr verify {out}`"
    )


def issue_signer(
    device: str = typer.Argument(..., help="Name of the device whose recorder signs."), as_json: bool = JSON_OPTION
) -> None:
    """Issue the key and certificates with which a device's recorder signs, from the development authority."""
    files = _stack().authority.signer(device)
    if as_json:
        typer.echo(json.dumps({"device": device, "key": str(files.key), "chain": str(files.certificate)}))
    else:
        typer.echo(f"key {files.key}\nchain {files.certificate}")


@custody_app.command("list", epilog="Example: fleetstream edr custody list --tenant north --json")
def custody_list(tenant: str = TENANT, as_json: bool = JSON_OPTION) -> None:
    """Who read, or was refused to read, what; newest first."""
    from api.queries import edr

    async def ask(opened: Reading) -> list[dict[str, Any]]:
        return await edr.list_custody(opened.connection, 2**62, 1_000)

    rows = _read(tenant, _request(custody.CUSTODY), ask)
    for row in [] if as_json else rows:
        basis = f", {row['basis']} {row['reference']}: {row['purpose']}" if row["basis"] else ""
        who = row["actor"] or row["key_id"]
        typer.echo(
            f"{row['entry_no']}  {row['at']:%Y-%m-%d %H:%M:%SZ}  {row['role']} {who}  "
            f"{row['action']} {row['subject'][:16]}  {row['outcome']} ({row['reason']}){basis}"
        )
    if as_json:
        typer.echo(json.dumps(rows, default=str))


@custody_app.command("verify", epilog="Example: fleetstream edr custody verify --json")
def custody_verify(
    tenant: str | None = typer.Option(None, help="One tenant only."), as_json: bool = JSON_OPTION
) -> None:
    """Check both hash-chained logs, their daily roots and every row that they vouch for. Exits 0 only if all holds."""
    from contracts.tables import ROLE_EVIDENCE
    from infra.custody_check import examine

    found = examine(_stack().dsn(ROLE_EVIDENCE), tenant)
    broken = [f"{one.tenant}: {fault}" for one in found for fault in one.breaks]
    if as_json:
        tenants = [
            {"tenant": one.tenant, "evidence_entries": one.evidence_entries, "custody_entries": one.custody_entries,
             "roots": one.roots, "breaks": [str(fault) for fault in one.breaks]}
            for one in found
        ]  # fmt: skip
        typer.echo(json.dumps({"holds": not broken, "tenants": tenants}))
    else:
        for fault in broken:
            typer.echo(f"BROKEN {fault}", err=True)
        for one in found:
            typer.echo(
                f"{one.tenant}: {one.evidence_entries} evidence and {one.custody_entries} custody entries, "
                f"{one.roots} daily roots: {'DOES NOT HOLD' if one.breaks else 'holds'}"
            )
    if broken:
        raise typer.Exit(EXIT_BROKEN)


def _value(element: Any) -> str:
    if element.values is None:
        return "not available"
    there = [value for value in element.values if value is not None]
    accuracy = (
        "" if element.accuracy.kind == "none" else f" (accuracy {element.accuracy.value:g} {element.accuracy.kind})"
    )
    saturated = "" if element.saturated_from_ms is None else f", saturated from {element.saturated_from_ms} ms"
    if len(element.values) == 1:
        return f"{there[0] if there else 'no sample'} {element.unit}{accuracy}{saturated}"
    ends = f"{there[0]} … {there[-1]} {element.unit}" if there else "no sample"
    return f"{len(there)} of {len(element.values)} samples, {ends}{accuracy}{saturated}"


def _request(action: str, subject: str = "", basis: str = "", purpose: str = "", reference: str = "") -> Request:
    return Request(getpass.getuser(), "command line", "admin", action, subject, purpose, basis, reference)


def _name(record: str) -> bytes:
    try:
        name = bytes.fromhex(record)
    except ValueError:
        name = b""
    if len(name) != 32 or record != record.lower():
        raise typer.BadParameter("a record is named by 64 hexadecimal digits", param_hint="RECORD")
    return name


def _stack() -> Stack:
    from infra.cli.common import load_settings, open_stack

    return open_stack(load_settings())


def _read(tenant: str, asked: Request, ask: Callable[[Reading], Awaitable[Found]]) -> Found:
    """Through the same door as the API: logged first, then read. Raises SetupError when it is refused."""
    from api.custody import reading
    from api.errors import Forbidden
    from api.queries.pool import Store
    from contracts.tables import ROLE_API

    stack = _stack()

    async def run() -> Found:
        store = Store(stack.dsn(ROLE_API), 1, 10.0, 30_000)
        await store.open()
        try:
            async with reading(store, _tenant_id(stack, tenant), asked) as opened:
                return await ask(opened)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except Forbidden as error:
        raise SetupError(f"Refused ({error.reason}): {error.detail}") from error


def _tenant_id(stack: Stack, tenant: str) -> int:
    import psycopg

    from contracts.tables import ROLE_READER

    with psycopg.connect(stack.dsn(ROLE_READER)) as connection:
        row = connection.execute("SELECT tenant_id FROM tenants WHERE name = %s", (tenant,)).fetchone()
    if row is None:
        raise SetupError(f"There is no tenant {tenant}; `fleetstream sql 'SELECT name FROM tenants'` lists them")
    return int(row[0])
