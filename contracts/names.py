"""Which characters a device or tenant name may have.

Names stand in MQTT topics, ACL patterns, certificate subjects and file names, so they are restricted where
they enter (CVE-2017-7650 is what happens to a broker's pattern ACLs otherwise).
"""

from __future__ import annotations

import re

from contracts.errors import Rejected

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


RESERVED_PREFIX = "gateway-"
"""The gateway's workers have certificates of this form, with rights over every device's topics."""


def check_device(name: str) -> str:
    """A name that a device may have. Raises Rejected('bad_name')."""
    if name.startswith(RESERVED_PREFIX):
        raise Rejected(
            "bad_name", f"names beginning with {RESERVED_PREFIX} belong to gateway workers, got {name[:80]!r}"
        )
    return check_name("device", name)


def check_name(what: str, name: str) -> str:
    """Return ``name`` or raise Rejected('bad_name')."""
    if not NAME_PATTERN.fullmatch(name):
        raise Rejected("bad_name", f"{what} must match {NAME_PATTERN.pattern}, got {name[:80]!r}")
    return name
