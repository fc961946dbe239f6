"""Certificates: what they say, who may read them, when they are issued again."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from contracts.errors import Rejected
from edge_agent.recorder.signing import load_signer
from infra.ca import LIFETIME, DevelopmentCa


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_device_certificate_names_the_device_and_is_for_clients(tmp_path: Path) -> None:
    authority = DevelopmentCa(tmp_path)
    certificate = load(authority.client("car-1").certificate)
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "car-1"
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate.verify_directly_issued_by(load(authority.ca_file))


def test_the_broker_s_certificate_is_for_loopback(tmp_path: Path) -> None:
    certificate = load(DevelopmentCa(tmp_path).broker().certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "../x", "x" * 65, "ä", "a b"])
def test_names_that_could_leave_their_topic_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Rejected, match="bad_name"):
        DevelopmentCa(tmp_path).client(name)


def test_every_file_is_for_its_owner_only(tmp_path: Path) -> None:
    authority = DevelopmentCa(tmp_path / "ca")
    authority.client("car-1")
    authority.broker()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "ca").rglob("*") if path.is_file()}
    assert len(modes) == 6 and set(modes.values()) == {0o600}


def test_a_second_start_uses_the_same_files(tmp_path: Path) -> None:
    first = DevelopmentCa(tmp_path).client("car-1").certificate.read_bytes()
    assert DevelopmentCa(tmp_path).client("car-1").certificate.read_bytes() == first


def test_certificates_are_issued_again_before_they_end_and_for_a_new_authority(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    first = DevelopmentCa(tmp_path, now).client("car-1").certificate.read_bytes()
    soon = now + LIFETIME - timedelta(days=29)
    second = DevelopmentCa(tmp_path, soon).client("car-1").certificate.read_bytes()
    assert second != first
    (tmp_path / "ca.pem").unlink()
    authority = DevelopmentCa(tmp_path, soon)
    load(authority.client("car-1").certificate).verify_directly_issued_by(load(authority.ca_file))


def test_a_signer_s_certificate_names_its_key_and_not_the_device(tmp_path: Path) -> None:
    authority = DevelopmentCa(tmp_path)
    made = authority.signer("car-1")
    own, root = x509.load_pem_x509_certificates(made.certificate.read_bytes())
    own.verify_directly_issued_by(root)
    assert root == load(authority.ca_file)
    assert "car-1" not in own.subject.rfc4514_string()
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    assert authority.signer("car-1").key.read_bytes() == made.key.read_bytes()
    load_signer(made.key.read_bytes(), made.certificate.read_bytes())
