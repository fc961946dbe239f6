"""What can stop the embedded stack: each message is one sentence about the fault and one about the fix."""

from __future__ import annotations

from contracts.errors import Fatal, TryLater


class SetupError(Fatal):
    """The machine lacks something; nothing was changed that a second start cannot continue."""


class ServiceFailed(Fatal):
    """A service did not become ready; its log says why and its data stays where it is."""


class MigrationRefused(Fatal):
    """An applied migration differs from its file; the database was not touched."""


class AlreadyUp(TryLater):
    """Another supervisor holds this runtime directory."""


class RebuildRefused(Fatal):
    """A rebuild, swap, drop or restore that would not be right; the live tables were not touched."""


class BackupRefused(Fatal):
    """A backup that cannot be written, believed or brought back; the store was not touched."""
