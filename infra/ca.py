"""A development certificate authority: broker, gateway workers and one client certificate per device.

P-256 keys, files that only their owner reads, re-used at the next start. Production brings its own authority;
nothing but the embedded stack trusts this one.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from contracts.names import check_name
from infra.paths import PRIVATE_DIR, write_private

LIFETIME = timedelta(days=825)
CA_LIFETIME = timedelta(days=3650)
BACKDATE = timedelta(days=1)
"""Certificates are valid from a day ago: a device whose clock is a little behind can still connect."""

RENEW_BEFORE = timedelta(days=30)
BROKER_NAME = "localhost"
PublicKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
GATEWAY_WORKERS = tuple(f"gateway-{number}" for number in range(8))


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of one client's PEM files."""

    ca: Path
    certificate: Path
    key: Path


class DevelopmentCa:
    """Issues certificates below ``folder``; one file pair per name."""

    def __init__(self, folder: Path, now: datetime | None = None) -> None:
        self._folder = folder
        self._now = now or datetime.now(UTC)
        folder.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
        self.ca_file = folder / "ca.pem"
        key_file = folder / "ca.key"
        if not _current(self.ca_file, key_file, self._now):
            self._make_authority(key_file)
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{key_file} is not an elliptic curve key")
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(self.ca_file.read_bytes())

    def client(self, name: str) -> Credentials:
        """The certificate of a device or gateway worker (CN = name). Raises Rejected('bad_name')."""
        check_name("certificate name", name)
        folder = self._folder / "clients"
        folder.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        return self._issue(name, folder / f"{name}.pem", folder / f"{name}.key", server=False)

    def signer(self, name: str) -> Credentials:
        """An Ed25519 key that signs crash records or exports, its ``certificate`` file the whole chain, own first.

        The certificate names the key, not the device: it travels inside of capsules, which name nobody.
        """
        check_name("certificate name", name)
        folder = self._folder / "signers"
        folder.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        certificate, key_file = folder / f"{name}.pem", folder / f"{name}.key"
        if not _current(certificate, key_file, self._now, issuer=self._certificate):
            key = ed25519.Ed25519PrivateKey.generate()
            subject = f"fleetstream signer {key.public_key().public_bytes_raw().hex()[:16]}"
            builder = self._builder(subject, key.public_key(), self._certificate.subject, LIFETIME)
            builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            chain = _text(builder.sign(self._key, hashes.SHA256())) + _text(self._certificate)
            write_private(key_file, _pem(key))
            write_private(certificate, chain)
        return Credentials(self.ca_file, certificate, key_file)

    def broker(self) -> Credentials:
        """The MQTT broker's certificate for loopback addresses."""
        return self._issue(BROKER_NAME, self._folder / "broker.pem", self._folder / "broker.key", server=True)

    def _issue(self, name: str, certificate: Path, key_file: Path, *, server: bool) -> Credentials:
        if not _current(certificate, key_file, self._now, issuer=self._certificate):
            key = ec.generate_private_key(ec.SECP256R1())
            usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
            builder = self._builder(name, key.public_key(), self._certificate.subject, LIFETIME)
            builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            if server:
                names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
                builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            write_private(key_file, _pem(key))
            write_private(certificate, _text(builder.sign(self._key, hashes.SHA256())))
        return Credentials(self.ca_file, certificate, key_file)

    def _make_authority(self, key_file: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("Fleetstream development CA")
        builder = self._builder("Fleetstream development CA", key.public_key(), subject, CA_LIFETIME)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_CA_USAGE, critical=True)
        write_private(key_file, _pem(key))
        write_private(self.ca_file, _text(builder.sign(key, hashes.SHA256())))

    def _builder(self, name: str, key: PublicKey, issuer: x509.Name, lifetime: timedelta) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - BACKDATE)
            .not_valid_after(self._now + lifetime)
        )


_CA_USAGE = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


def _current(certificate: Path, key: Path, now: datetime, issuer: x509.Certificate | None = None) -> bool:
    """Whether the pair is there, valid for some time and signed by today's authority."""
    if not (certificate.is_file() and key.is_file()):
        return False
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except ValueError:
        return False
    if issuer is not None and not _signed_by(found, issuer):
        return False
    return found.not_valid_after_utc - now > RENEW_BEFORE


def _signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _text(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
