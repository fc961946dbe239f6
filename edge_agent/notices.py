"""Notices for the people at the machine: a small JSON file that a display reads, the newest first, always whole.

What shows it (a dashboard, an HMI) is the machine's own business; it watches one file. The file is replaced by a
rename, so a reader sees the notices before or after, never half of them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from contracts.commands import Command
from contracts.errors import Rejected

MOST: Final = 20
"""Notices kept; a display shows few, and the cloud has them all."""


def show_notice(file: Path, command: Command, at_ms: int) -> int:
    """Add a notice in front, in the place of an earlier one of its alert; how many are shown. Raises Rejected."""
    entry = {"at_ms": at_ms, "alert": "", **command.arguments}
    kept = [one for one in read_notices(file) if not entry["alert"] or one.get("alert") != entry["alert"]]
    notices = [entry, *kept][:MOST]
    part = file.with_name(file.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as handle:
            json.dump(notices, handle, ensure_ascii=False)
            handle.flush()
            os.fsync(handle.fileno())
        part.replace(file)
    except OSError as error:
        raise Rejected("no_notices", f"the display's file cannot be written ({type(error).__name__})") from error
    return len(notices)


def read_notices(file: Path) -> list[dict[str, Any]]:
    """What is shown now, newest first; a file that is not there or not readable shows nothing."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
