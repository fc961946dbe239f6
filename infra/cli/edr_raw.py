"""Raw data out of a checked export: raw motion as a table for people and programs, anything else as its bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from contracts.edr.errors import MalformedEvidence
from contracts.edr.raw import RAW_MOTION, decode_raw
from contracts.edr.verify import Attached
from infra.errors import SetupError

COLUMNS = ("after_us", "x_mm_s2", "y_mm_s2", "z_mm_s2", "limits")
"""Microseconds from time zero; x forward, y right, z down; bits 1, 2, 4 where x, y, z stood at the sensor's limit."""


def write_raw(attachments: Iterable[Attached], folder: Path) -> list[Path]:
    """One file each, ``<record>-<name>-<hash>``; returns them. Raises SetupError."""
    written = []
    for one in attachments:
        stem = f"{one.record_no}-{one.claim.name}-{one.claim.sha256.hex()[:8]}"
        table = as_table(one)
        file = folder / (f"{stem}.bin" if table is None else f"{stem}.csv")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(one.data if table is None else table.encode())
        except OSError as error:
            raise SetupError(f"{file} cannot be written ({error.strerror}); name another folder") from error
        written.append(file)
    return written


def as_table(one: Attached) -> str | None:
    """Raw motion as CSV; None for other data, and for a format that is not known here."""
    if one.claim.name != RAW_MOTION:
        return None
    try:
        raw = decode_raw(one.data)
    except MalformedEvidence:
        return None
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(raw.after_us, raw.x, raw.y, raw.z, raw.limits, strict=True))
    return out.getvalue()
