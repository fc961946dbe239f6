"""What the gateway raises; the root classes (``contracts.errors``) say what a caller can do about it."""

from __future__ import annotations

from contracts.errors import Fatal


class SettingsError(Fatal):
    """A setting is missing or wrong; the message names it."""
