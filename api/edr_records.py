"""From rows of a crash record to what is told of it: physical values, times from zero, the profile's words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from api.edr_shapes import Accuracy, CrashAttachment, CrashElement, CrashRecord, CrashSummary
from contracts.edr.custody import ANONYMOUS_BASES
from contracts.edr.elements import Element
from contracts.edr.profiles import Profile, load_profile

Row = Mapping[str, Any]


def summary(row: Row) -> CrashSummary:
    return CrashSummary(**{name: row[name] for name in CrashSummary.model_fields})


def masked(row: Row, basis: str) -> dict[str, Any]:
    """A record's row as this basis may see it: under research nobody is identified."""
    hidden = ("device", "asset", "received_at", "stored_at") if basis in ANONYMOUS_BASES else ()
    return {**row, **dict.fromkeys(hidden)}


def file_name(row: Row) -> str:
    """Of an export; by the record's hash where the device is not told."""
    return f"{row['device'] or row['record'][:16]}-{row['record_no']}.fsx"


def whole(row: Row, elements: Sequence[Row], claimed: Mapping[str, str], entry_no: int) -> CrashRecord:
    """``claimed``: state by hash of the attachments that are held."""
    profile = load_profile(row["profile"])
    event = dict(row["event"])
    attachments = [
        CrashAttachment(name=name, sha256=sha256, size_bytes=size, state=claimed.get(sha256, "missing"))
        for name, sha256, size in event.pop("attachments", [])
    ]
    return CrashRecord(
        summary=summary(row), profile_title=profile.title, profile_status=profile.status, profile_mark=profile.mark,
        custody_entry=entry_no, key_id=row["key_id"], algorithm=row["algorithm"],
        previous_sha256=row["previous_sha256"], event=event, attachments=attachments,
        elements=[element(one, _described(profile, one["name"])) for one in elements],
    )  # fmt: skip


def element(row: Row, described: Element | None) -> CrashElement:
    """``described``: the profile's row; None when this edition of the profile no longer lists the element."""
    return CrashElement(
        name=row["name"], status=row["status"], kind=row["kind"], unit=row["unit"], states=row["states"],
        resolution=float(row["resolution"]),
        title=described.title if described else row["name"],
        table=described.table if described else "",
        presence=described.presence if described else "",
        mark=described.mark if described else "unsure",
        condition=described.condition if described else "",
        note=described.note if described else "",
        minimum=float(described.minimum) if described else 0.0,
        maximum=float(described.maximum) if described else 0.0,
        accuracy=_accuracy(described),
        first_ms=None if row["first"] is None else row["first"] * row["step_us"] / 1_000,
        step_ms=None if row["step_us"] is None else row["step_us"] / 1_000,
        values=_values(row),
        saturated_from_ms=row["saturated_from_ms"],
        clamped=row["clamped"],
    )  # fmt: skip


def _values(row: Row) -> list[float | str | None] | None:
    steps, states = row["steps"], row["states"]
    if steps is None:
        return None
    if states:
        return [None if step is None else states[step] for step in steps]
    resolution: Decimal = row["resolution"]
    return [None if step is None else float(step * resolution) for step in steps]


def _described(profile: Profile, name: str) -> Element | None:
    try:
        return profile.element(name)
    except KeyError:
        return None


def _accuracy(described: Element | None) -> Accuracy:
    if described is None:
        return Accuracy(kind="none", value=0.0)
    return Accuracy(kind=described.accuracy.kind, value=float(described.accuracy.value))
