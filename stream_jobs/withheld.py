"""What the archive leaves out: who was in a crash, where and when must not lie in files that no custody log guards.

In the place of such bytes it keeps a stand-in: what was left out is named by hash and size, and every offset of the
log stays accounted for. Read again by ``infra/migrations/030_sealed_letters.sql``, which keeps both on a rebuild.
"""

from __future__ import annotations

import hashlib
from typing import Final

from contracts.edr.wire import Linkage, open_parcel
from contracts.errors import Rejected
from contracts.packet import decode_header, is_parcel
from contracts.stamp import decode_dead_letter
from contracts.topics import UP_PRIORITY

MAGIC: Final = b"FSWH\x01"
STAND_IN_BYTES: Final = len(MAGIC) + 32 + 4


def stand_in(value: bytes) -> bytes:
    """Instead of ``value``: its SHA-256 and its size (4 bytes, big endian)."""
    return MAGIC + hashlib.sha256(value).digest() + len(value).to_bytes(4, "big")


def for_archive(value: bytes | None, header: bytes | None, letters: bool) -> bytes | None:
    """What the archive keeps of a record of the priority topic, or (``letters``) of the dead letters.

    A linkage is left out, and so is whatever cannot be read and may have been one.
    """
    if value is None or (value.startswith(MAGIC) and len(value) == STAND_IN_BYTES):
        return value
    if letters and not is_parcel(value) and not _came_by_priority(header):
        return value
    return value if _names_nobody(value) else stand_in(value)


def _names_nobody(value: bytes) -> bool:
    """Sound bytes of samples, or of any parcel but a linkage."""
    try:
        if is_parcel(value):
            return not isinstance(open_parcel(value)[1], Linkage)
        decode_header(value)
    except Rejected:
        return False
    return True


def _came_by_priority(header: bytes | None) -> bool:
    try:
        topic = decode_dead_letter(header or b"").mqtt_topic
    except Rejected:
        return True
    return not isinstance(topic, str) or topic.endswith(f"/{UP_PRIORITY}")
