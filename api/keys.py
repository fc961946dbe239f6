"""API keys: ``fsk_<id>_<secret>``. The store keeps the id and the SHA-256 of the whole key, never the secret.

A plain hash is enough because the secret is 256 random bits, not something a person thought of.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from api.errors import Unauthorised

ROLES = ("operator", "maintenance", "insurer", "auditor", "admin")
KEY_PATTERN = re.compile(r"fsk_([0-9a-z]{8,32})_([A-Za-z0-9_-]{43})", re.ASCII)
"""43 characters of base64url are 32 bytes."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key at the moment it is made: ``text`` is shown once, the other two go into ``api_keys``."""

    key_id: str
    text: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a key that was checked."""

    key_id: str
    tenant_id: int
    role: str


def new_key() -> NewKey:
    key_id = secrets.token_hex(8)
    text = f"fsk_{key_id}_{secrets.token_urlsafe(32)}"
    return NewKey(key_id, text, digest(text))


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def matches(text: str, sha256: bytes) -> bool:
    """Constant-time comparison of a key with what the store keeps."""
    return hmac.compare_digest(digest(text), sha256)


def read_header(header: str | None) -> tuple[str, str]:
    """(key id, key) out of an Authorization header. Raises Unauthorised."""
    if header is None:
        raise Unauthorised("no_key", "send your key as: Authorization: Bearer fsk_…")
    scheme, _, text = header.partition(" ")
    found = KEY_PATTERN.fullmatch(text.strip())
    if scheme.lower() != "bearer" or found is None:
        raise Unauthorised("bad_key", "this is not an API key of this service")
    return found[1], found[0]
