"""What can go wrong on the device, by what to do next."""

from __future__ import annotations

from contracts.errors import Fatal, Rejected, TryLater


class SpoolFullError(TryLater):
    """The disk took no more; nothing accepted was lost, the batch stays in memory and is offered again."""


class SpoolCorruptError(TryLater):
    """The spool file is damaged; it is set aside and a new one takes over."""


class SettingsError(Fatal):
    """The configuration cannot work; the message names the key and the fix."""


class RecordingError(Rejected):
    """A recording cannot be read as told; the message names file and line."""
