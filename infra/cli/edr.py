"""``fleetstream edr``: crash records on the command line; ``verify`` needs the file and nothing else.

``simulate`` runs the recorder of the agent on a known pulse and writes the sealed export that a device would.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import typer
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from contracts.edr.capsule import Capsule
from contracts.edr.export import NOTICE
from contracts.edr.profiles import PROFILE_NAMES, load_profile
from contracts.edr.verify import Verdict, root_of, verify_export
from contracts.edr.x509 import X509Checks
from infra.cli.edr_raw import write_raw
from infra.cli.edr_store import custody_app, export_record, issue_signer, list_asides, list_records, show_record
from infra.errors import SetupError
from simulators.crashes.play import ASKEW, BUMPER, SHORT, play
from simulators.crashes.scenarios import SCENARIOS

# not from infra.cli.common: an examiner's machine has no stack, and `verify` must not need its parts
JSON_OPTION = typer.Option(False, "--json", help="Print JSON instead of words.")
MAX_FILE_BYTES = 512 * 1024 * 1024
WHY = "--basis owner_consent --reference 'consent 12' --purpose 'claim 4711'"
NOT_AT_THE_VEHICLE = "not known, since this export was issued by a store and not at the vehicle"
SENSORS = {"straight": BUMPER, "askew": ASKEW, "saturating": SHORT}

app = typer.Typer(help="Crash records: list, show, export, asides, verify, custody, simulate.", no_args_is_help=True)
app.command("list", epilog="Example: fleetstream edr list --tenant north --json")(list_records)
app.command("show", epilog=f"Example: fleetstream edr show 9f86d081… --tenant north {WHY}")(show_record)
app.command("export", epilog=f"Example: fleetstream edr export 9f86… --tenant north --out 1.fsx {WHY}")(export_record)
app.command("asides", epilog="Example: fleetstream edr asides --tenant north --json")(list_asides)
app.command("signer", epilog="Example: fleetstream edr signer van-7 --json")(issue_signer)
app.add_typer(custody_app, name="custody")


@app.callback()
def group() -> None:
    """Crash records: list, show, export, asides, verify, custody, simulate."""


@app.command(
    epilog="Example: fleetstream edr simulate --pulse haversine --profile part563-2024 --seed 7 --out crash.fsx"
)
def simulate(
    pulse: str = typer.Option(..., help=f"One of: {', '.join(SCENARIOS)}."),
    profile: str = typer.Option(..., help=f"One of: {', '.join(PROFILE_NAMES)}."),
    out: Path = typer.Option(..., help="The export to write."),
    seed: int = typer.Option(1, min=0, help="Noise, sampling phase and throw-away key; same seed, same capsules."),
    sensor: str = typer.Option("straight", help=f"One of: {', '.join(SENSORS)}."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Run the real recorder on a simulated drive and write what it sealed; a drive without a crash seals nothing."""
    check_choice(pulse, SCENARIOS, "--pulse")
    check_choice(profile, PROFILE_NAMES, "--profile")
    check_choice(sensor, SENSORS, "--sensor")
    played = play(SCENARIOS[pulse], profile, seed, SENSORS[sensor])
    export = played.recorder.export(time.time_ns() // 1_000_000)
    try:
        out.write_bytes(export)
    except OSError as error:
        raise SetupError(f"{out} cannot be written ({error.strerror}); name another file with --out") from error
    records = [describe(capsule) for capsule in played.held]
    if as_json:
        typer.echo(json.dumps({"file": str(out), "bytes": len(export), "source": "simulated", "records": records}))
        return
    typer.echo(f"{out}: {len(export)} bytes, {len(records)} record(s), simulated")
    show_records(records)


@app.command(epilog="Example: fleetstream edr verify crash.fsx --trust-root root.pem --json")
def verify(
    file: Path = typer.Argument(..., help="An export."),
    trust_root: list[str] = typer.Option(
        [], help="PEM file, or SHA-256 in hexadecimal, of a root that chains may end in; may be given several times."
    ),
    at: str | None = typer.Option(None, help="Judge the certificates as of this ISO 8601 time instead of now."),
    raw_to: Path | None = typer.Option(None, help="Folder for the raw data in the file, written only if all holds."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Check every hash, signature, certificate and link of an export, offline. Exits 0 only if all of it holds."""
    data = read_bounded(file)
    at_ms = time.time_ns() // 1_000_000 if at is None else parse_time_ms(at)
    roots = {root for one in trust_root for root in roots_sha256(one)}
    verdict = verify_export(data, X509Checks(), at_ms, roots or None)
    if as_json:
        typer.echo(json.dumps(report(verdict)))
    else:
        show(verdict)
    if not verdict.holds:
        raise typer.Exit(1)
    if raw_to is not None:
        for file in write_raw(verdict.attachments, raw_to):
            typer.echo(f"wrote {file}", err=True)


def check_choice(value: str, known: Collection[str], option: str) -> None:
    """Raises BadParameter that lists what there is."""
    if value not in known:
        raise typer.BadParameter(f"{value!r} is none of: {', '.join(known)}", param_hint=option)


def read_bounded(file: Path) -> bytes:
    """The file's bytes. Raises SetupError when it cannot be read or is larger than any export."""
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise SetupError(f"{file} is larger than any export ({MAX_FILE_BYTES} bytes): is it the right file?")
        return file.read_bytes()
    except OSError as error:
        raise SetupError(f"{file} cannot be read: {error.strerror}") from error


def parse_time_ms(text: str) -> int:
    """An ISO 8601 time (UTC unless it says otherwise) as milliseconds since 1970. Raises BadParameter."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is no ISO 8601 time, like 2026-11-21T12:00:00Z", param_hint="--at"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1_000)


def roots_sha256(said: str) -> set[bytes]:
    """The hashes of the root certificates in a PEM file, or the one that is said itself. Raises SetupError."""
    if re.fullmatch("[0-9a-f]{64}", said):
        return {bytes.fromhex(said)}
    file = Path(said)
    try:
        certificates = x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        raise SetupError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SetupError(f"{file} holds no PEM certificate") from error
    return {hashlib.sha256(one.public_bytes(Encoding.DER)).digest() for one in certificates}


def describe(capsule: Capsule) -> dict[str, Any]:
    """A record's key facts, in physical units."""
    record = capsule.record
    profile = load_profile(record.profile)
    peaks = {}
    for name in ("max_delta_v_longitudinal", "max_delta_v_lateral", "time_max_delta_v_longitudinal"):
        value = record.value(name)
        if value is not None and value.values[0] is not None:
            peaks[name] = profile.element(name).from_steps(value.values[0])
    return {
        "record_no": capsule.head.place.record_no,
        "sha256": capsule.sha256.hex(),
        "root_sha256": root_of(capsule).hex(),
        "profile": record.profile,
        "source": record.source,
        "trigger": record.trigger,
        "time_zero_rule": record.time_zero_rule,
        "event_number": record.event_number,
        "complete": record.complete,
        "locked": record.lock_reason or False,
        "recorded": len(record.elements),
        "not_available": len(record.not_available),
        **peaks,
    }


def report(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON says it."""
    manifest = verdict.manifest
    return {
        "holds": verdict.holds,
        "notice": NOTICE,
        "root_sha256": verdict.root_sha256.hex(),
        "root_trusted": verdict.root_pinned and verdict.holds,
        "scope": manifest.scope if manifest else None,
        "issued_at_ms": manifest.issued_at_ms if manifest else None,
        "ignition_cycle_download": manifest.ignition_cycle_download if manifest else None,
        "faults": [
            {"place": fault.place, "first_byte": fault.first_byte, "last_byte": fault.last_byte, "what": fault.what}
            for fault in verdict.faults
        ],
        "records": [describe(capsule) for capsule in verdict.capsules],
        "attachments": [
            {
                "record_no": one.record_no,
                "name": one.claim.name,
                "sha256": one.claim.sha256.hex(),
                "bytes": len(one.data),
            }
            for one in verdict.attachments
        ],
    }


def show(verdict: Verdict) -> None:
    """The verdict for people."""
    for fault in verdict.faults:
        typer.echo(f"FAULT {fault}", err=True)
    show_records([describe(capsule) for capsule in verdict.capsules])
    if verdict.manifest is not None:
        cycle = verdict.manifest.ignition_cycle_download
        typer.echo(f"ignition cycle at download: {NOT_AT_THE_VEHICLE if cycle is None else cycle}")
    for one in verdict.attachments:
        typer.echo(f"record {one.record_no} has {one.claim.name}: {len(one.data)} bytes, as it claims")
    typer.echo(f"issued under root {verdict.root_sha256.hex() or 'unreadable'}")
    for root in sorted({root_of(capsule).hex() for capsule in verdict.capsules}):
        typer.echo(f"sealed under root {root}")
    if verdict.holds and not verdict.root_pinned:
        typer.echo("roots were not compared with ones you trust: pass --trust-root, or compare the lines above")
    typer.echo(f"{'holds' if verdict.holds else 'DOES NOT HOLD'}: {len(verdict.capsules)} record(s); {NOTICE}")


def show_records(records: list[dict[str, Any]]) -> None:
    """One line per record; nothing for none."""
    for record in records:
        words = [
            f"record {record['record_no']}: {record['profile']}, {record['source']}, trigger {record['trigger']}",
            f"event {record['event_number']}",
            "complete" if record["complete"] else "incomplete",
            f"locked by {record['locked']}" if record["locked"] else "not locked",
            f"{record['recorded']} elements recorded, {record['not_available']} not available",
        ]
        for axis in ("longitudinal", "lateral"):
            value = record.get(f"max_delta_v_{axis}")
            if value is not None:
                words.append(f"maximum delta-V {axis} {value:+g} km/h")
        typer.echo(", ".join(words))
