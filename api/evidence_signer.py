"""The service's own signature under exports: an Ed25519 key and its certificate chain, from two PEM files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from api.errors import SettingsError
from contracts.edr.x509 import ALGORITHM, KEY_ID_BYTES


@dataclass(frozen=True, slots=True)
class ExportSigner:
    """A private key with the chain that vouches for it (DER, own certificate first, root last)."""

    private_key: Ed25519PrivateKey
    certificates: tuple[bytes, ...]

    @property
    def key_id(self) -> bytes:
        der = self.private_key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return hashlib.sha256(der).digest()[:KEY_ID_BYTES]

    @property
    def algorithm(self) -> str:
        return ALGORITHM

    def sign(self, message: bytes) -> bytes:
        """The signature over these bytes."""
        return self.private_key.sign(message)


def read_signer(key: Path | None, chain: Path | None) -> ExportSigner | None:
    """None when no key is configured. Raises SettingsError for files that are not such a pair."""
    if key is None or chain is None:
        return None
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
        certificates = x509.load_pem_x509_certificates(chain.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(f"edr_key and edr_chain cannot be read as PEM ({error}); name the right files") from error
    if not isinstance(private, Ed25519PrivateKey) or private.public_key() != certificates[0].public_key():
        raise SettingsError("edr_key is no Ed25519 key, or not the key of the first certificate in edr_chain")
    return ExportSigner(private, tuple(one.public_bytes(serialization.Encoding.DER) for one in certificates))
