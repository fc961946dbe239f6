"""The version of the distribution this room came in."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "fleetstream"


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unpacked"  # run from a source tree that was never installed


VERSION = _version()
