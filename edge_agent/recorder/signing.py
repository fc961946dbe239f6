"""The device's key and its certificates: the only place in the agent that touches the cryptographic library.

Ed25519, because the key lies in software and its signatures are deterministic: the same record gives the same capsule.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

ALGORITHM: Final = "ed25519"
KEY_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class DeviceSigner:
    """A private key with the chain that vouches for it (DER, own certificate first, root last)."""

    private_key: Ed25519PrivateKey
    certificates: tuple[bytes, ...]

    @property
    def key_id(self) -> bytes:
        """The first 16 bytes of the SHA-256 of the public key's DER: names a key without naming a device."""
        return public_key_id(self.private_key.public_key())

    @property
    def algorithm(self) -> str:
        return ALGORITHM

    def sign(self, message: bytes) -> bytes:
        """The signature over these bytes."""
        return self.private_key.sign(message)


def public_key_id(key: Ed25519PublicKey) -> bytes:
    """The key id of a public key."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).digest()[:KEY_ID_BYTES]


def load_signer(key_pem: bytes, chain_pem: bytes) -> DeviceSigner:
    """A signer from an unencrypted private key and its chain, both PEM. Raises ValueError for anything but Ed25519."""
    key = serialization.load_pem_private_key(key_pem, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the recorder's key must be Ed25519")
    chain = x509.load_pem_x509_certificates(chain_pem)
    return DeviceSigner(key, tuple(one.public_bytes(serialization.Encoding.DER) for one in chain))


def development_signer(seed: bytes, not_before: dt.datetime, not_after: dt.datetime) -> DeviceSigner:
    """A throw-away root and device key made from ``seed``: for simulations and tests, worth nothing as evidence."""
    root = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"root" + seed).digest())
    device = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"device" + seed).digest())
    root_name, device_name = _name("Fleetstream simulation root"), _name("simulated recorder")
    dates = (not_before, not_after)
    root_der = _certificate(root_name, root_name, root.public_key(), root, dates, authority=True)
    device_der = _certificate(device_name, root_name, device.public_key(), root, dates, authority=False)
    return DeviceSigner(device, (device_der, root_der))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: Ed25519PublicKey,
    signer: Ed25519PrivateKey,
    dates: tuple[dt.datetime, dt.datetime],
    authority: bool,
) -> bytes:
    serial = int.from_bytes(public_key_id(public_key)[:8], "big") >> 1 | 1
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(serial)
        .not_valid_before(dates[0])
        .not_valid_after(dates[1])
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    return builder.sign(signer, algorithm=None).public_bytes(serialization.Encoding.DER)
