"""What can be wrong with a crash record's bytes or with a profile's file."""

from __future__ import annotations

from contracts.errors import Fatal, Rejected


class MalformedEvidence(Rejected):
    """Bytes that are not a well-formed capsule or export; ``offset`` is where the reader gave up."""

    def __init__(self, detail: str, offset: int = 0) -> None:
        super().__init__("malformed_evidence", f"{detail} (byte {offset})")
        self.offset = offset


class RecordOutsideProfile(Rejected):
    """A record that carries what its profile does not list, or carries it in another shape."""

    def __init__(self, detail: str) -> None:
        super().__init__("record_outside_profile", detail)


class BadProfile(Fatal):
    """A profile file that breaks its own rules: the program must not start with it."""
