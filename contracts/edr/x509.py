"""The cryptography behind a verdict on crash records: signatures and certificate chains, offline.

Implements ``contracts.edr.verify.EvidenceChecks``; everything that can be wrong with a certificate becomes a sentence.
The one module of this room that needs a cryptographic library. No other module here imports it (a test holds that):
who examines evidence (command line, evidence consumer) imports it and hands it to ``verify``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from contracts.edr.errors import MalformedEvidence

ALGORITHM = "ed25519"
KEY_ID_BYTES = 16


class X509Checks:
    """Ed25519 signatures under X.509 chains (DER, the signer's own certificate first, the root last)."""

    def key_id(self, certificate: bytes) -> bytes:
        """The first 16 bytes of the SHA-256 of the public key's DER. Raises MalformedEvidence."""
        der = _public_key(certificate).public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return hashlib.sha256(der).digest()[:KEY_ID_BYTES]

    def signature_holds(self, certificate: bytes, algorithm: str, message: bytes, signature: bytes) -> bool:
        """Whether the certificate's key made this signature. Raises MalformedEvidence for an unreadable certificate."""
        if algorithm != ALGORITHM:
            return False
        try:
            _public_key(certificate).verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def chain_faults(self, certificates: Sequence[bytes], at_ms: int) -> list[str]:
        """What is wrong with the chain as of ``at_ms``; empty when every link holds."""
        try:
            chain = [_parse(certificate) for certificate in certificates]
        except MalformedEvidence as bad:
            return [str(bad)]
        at = dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC)
        faults = []
        for number, certificate in enumerate(chain, 1):
            faults += _date_faults(number, certificate, at)
            issuer = chain[min(number, len(chain) - 1)]
            try:
                certificate.verify_directly_issued_by(issuer)
            except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
                faults.append(f"certificate {number} was not issued by the next one in the chain")
            if number > 1 and not _may_issue(certificate):
                faults.append(f"certificate {number} is no authority and may not issue others")
        return faults


def _date_faults(number: int, certificate: x509.Certificate, at: dt.datetime) -> list[str]:
    if at < certificate.not_valid_before_utc:
        return [f"certificate {number} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M}Z"]
    if at > certificate.not_valid_after_utc:
        return [
            f"certificate {number} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}Z"
            " (judged as of the given time: if the file was received before, examine it as of then)"
        ]
    return []


def _may_issue(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _parse(certificate: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(certificate)
    except ValueError as bad:
        raise MalformedEvidence(f"a certificate cannot be read: {bad}") from bad


def _public_key(certificate: bytes) -> Ed25519PublicKey:
    try:
        key = _parse(certificate).public_key()
    except (ValueError, UnsupportedAlgorithm) as bad:
        raise MalformedEvidence(f"a certificate's key cannot be read: {bad}") from bad
    if not isinstance(key, Ed25519PublicKey):
        raise MalformedEvidence("a certificate's key is not Ed25519")
    return key
