"""What can go wrong in the recorder, and what to do then."""

from __future__ import annotations

from contracts.errors import Fatal, Rejected


class RecorderFull(Rejected):
    """Every place holds a locked record; the new event is refused, as the regulations demand, and counted."""

    def __init__(self, capacity: int) -> None:
        super().__init__("recorder_full", f"all {capacity} places hold locked records; export and replace the file")


class RecorderFileUnusable(Fatal):
    """The file is not ours, was made otherwise or its medium fails. Set it aside, keep it, start with a new one."""

    def __init__(self, what: str) -> None:
        super().__init__(f"recorder file: {what}; nothing in it was changed: set it aside and start with a new file")
