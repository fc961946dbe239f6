"""What can go wrong here, by what the caller can do about it."""

from __future__ import annotations

from contracts.errors import Fatal, Rejected


class PlanError(Fatal):
    """A plan or a replay cannot be carried out as asked; the message names the fix."""


class RecordingError(Rejected):
    """This file is not a recording that we can read."""
