"""Resolve the pinned jars with the Ivy that Spark ships, verify them, keep them in the cache.

Ivy's own default repository is used, or the mirror that the user's Maven settings name, or the Ivy settings
file given by ``FLEETSTREAM_IVY_SETTINGS``. No POM is read: ``jars.toml`` lists the whole closure. A second
start finds the verified files and needs no network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import tomllib
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from infra.errors import SetupError
from infra.java import find_java, trust_options
from infra.paths import exclusive

IVY_TIMEOUT_S = 600
_MODULE = """<ivy-module version="2.0"><info organisation="fleetstream" module="jars"/>
<configurations><conf name="default"/></configurations><dependencies>{lines}</dependencies></ivy-module>"""
_SETTINGS = """<ivysettings><settings defaultResolver="jars"/><caches defaultCacheDir={cache}/>
<resolvers><ibiblio name="jars" m2compatible="true" usepoms="false"{root}/></resolvers></ivysettings>"""


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned file."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.organisation}__{self.name}-{self.version}.jar"


def pinned(jar_set: str) -> tuple[Jar, ...]:
    """The jars of ``broker`` or ``spark`` as ``jars.toml`` names them."""
    table = tomllib.loads(Path(__file__).with_name("jars.toml").read_text(encoding="utf-8"))
    return tuple(_jar(row["coordinate"], row["sha256"]) for row in table[jar_set])


def resolve(jar_set: str, cache: Path) -> tuple[Path, ...]:
    """Verified paths of every jar of a set, fetched when missing. Raises SetupError with the fix."""
    jars = pinned(jar_set)
    folder = cache / "jars"
    with exclusive(folder / ".lock"):
        missing = [jar for jar in jars if not _verified(folder / jar.file_name, jar)]
        if missing:
            _fetch(missing, folder, cache)
    return tuple(folder / jar.file_name for jar in jars)


def spark_classpath_folder() -> Path:
    """The folder of jars inside the installed PySpark. Raises SetupError."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError("PySpark is not installed; run: pip install 'fleetstream[stream]'")
    return Path(spec.origin).parent / "jars"


def _jar(coordinate: str, sha256: str) -> Jar:
    organisation, name, version = coordinate.split(":")
    return Jar(organisation, name, version, sha256)


def _verified(path: Path, jar: Jar) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256


def _fetch(jars: Sequence[Jar], folder: Path, cache: Path) -> None:
    java = find_java(cache)
    ivy = next(spark_classpath_folder().glob("ivy-*.jar"), None)
    if ivy is None:
        raise SetupError("This PySpark ships no Ivy; install the pinned one with: pip install pyspark==4.1.1")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        work = Path(scratch)
        module, pattern = work / "ivy.xml", f"{work}/[organisation]__[artifact]-[revision].[ext]"
        module.write_text(_MODULE.format(lines="".join(map(_dependency, jars))))
        settings = _ivy_settings(work)
        command = [
            str(java.launcher), *trust_options(cache), *_proxy_options(), "-cp", str(ivy), "org.apache.ivy.Main",
            "-settings", str(settings), "-ivy", str(module), "-retrieve", pattern,
        ]  # fmt: skip
        answer = _run(command)
        for jar in jars:
            _take(work, folder, jar, answer)


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=IVY_TIMEOUT_S, check=False).stdout
    except subprocess.TimeoutExpired as error:
        raise SetupError(f"Fetching jars took over {IVY_TIMEOUT_S} s; check the network and start again") from error


def _take(work: Path, folder: Path, jar: Jar, answer: str) -> None:
    fetched = work / jar.file_name
    if not fetched.is_file():
        reason = next((line.strip() for line in answer.splitlines() if "exception" in line or "not found" in line), "")
        raise SetupError(
            f"{jar.organisation}:{jar.name}:{jar.version} could not be fetched ({reason[:200]}); check the network, or "
            "name your repository in an Ivy settings file given by FLEETSTREAM_IVY_SETTINGS"
        )
    if not _verified(fetched, jar):
        raise SetupError(f"{jar.file_name} differs from the SHA-256 in infra/jars.toml; it was not used")
    shutil.move(fetched, folder / jar.file_name)


def _dependency(jar: Jar) -> str:
    return (
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} rev={quoteattr(jar.version)}"
        ' transitive="false" conf="default->*"/>'
    )


def _ivy_settings(work: Path) -> Path:
    named = os.environ.get("FLEETSTREAM_IVY_SETTINGS")
    if named:
        return Path(named)
    mirror = maven_mirror(Path.home() / ".m2" / "settings.xml")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    path = work / "ivysettings.xml"
    path.write_text(_SETTINGS.format(cache=quoteattr(str(work / "ivy")), root=root))
    return path


def maven_mirror(settings: Path) -> str | None:
    """The address that the user's Maven settings put in place of the central repository."""
    if not settings.is_file():
        return None
    try:
        tree = ElementTree.parse(settings)
    except ElementTree.ParseError:
        return None
    for mirror in tree.iterfind(".//{*}mirror"):
        if mirror.findtext("{*}mirrorOf") in ("*", "central", "external:*"):
            return mirror.findtext("{*}url")
    return None


def _proxy_options() -> list[str]:
    """The environment's proxies as JVM properties, which Java does not read by itself."""
    options = []
    for scheme, address in urllib.request.getproxies().items():
        parts = urlsplit(address)
        if scheme in ("http", "https") and parts.hostname:
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 80}"]
    return options
