"""Fetch one package with apt's own tools and unpack it without root, beside the system's own state.

The mirror, the release and the keyring are those that the machine's apt already uses; lists and archives go
to a folder of the cache, so neither root nor a change to the system is needed. Signatures are checked by apt.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.errors import SetupError

APT_FOLDER = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Source:
    """One mirror line: where, which releases, who signs."""

    address: str
    suites: tuple[str, ...]
    signed_by: str | None = None


def unpack_package(name: str, least: tuple[int, ...], folder: Path, fix: str) -> None:
    """Put the package and the libraries that the system lacks into ``folder/root``. Raises SetupError."""
    missing = [tool for tool in ("apt-get", "apt-cache", "dpkg", "dpkg-query") if not shutil.which(tool)]
    if missing:
        raise SetupError(f"No {name} was found and this machine has no {missing[0]} to fetch one; {fix}")
    release = parse_os_release(OS_RELEASE.read_text())
    source = pick_source(read_sources(APT_FOLDER), release.get("VERSION_CODENAME", ""))
    if source is None:
        raise SetupError(f"No {name} was found and apt names no mirror of this release; {fix}")
    apt = _Apt(folder / "apt", fix)
    apt.write_sources(source_lines(source, release.get("ID", "")))
    apt.run("apt-get", "update")
    version = pick_version(apt.run("apt-cache", "madison", name), least)
    if version is None:
        raise SetupError(f"This distribution's {name} is older than {'.'.join(map(str, least))}; {fix}")
    backports = f"{source.suites[0]}-backports" if "~bpo" in version else None
    archives = apt.download(name, version, backports)
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    for archive in archives:
        apt.run("dpkg", "-x", str(archive), str(root), options=False)
    shutil.rmtree(folder / "apt", ignore_errors=True)


def parse_os_release(text: str) -> dict[str, str]:
    """Keys and values of /etc/os-release."""
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in text.splitlines())}


def read_sources(folder: Path) -> tuple[Source, ...]:
    """Every binary mirror that apt knows, from one-line files and from deb822 stanzas."""
    lines = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]
    stanzas = sorted(folder.glob("sources.list.d/*.sources"))
    found = [source for file in lines if file.is_file() for source in parse_lines(file.read_text())]
    return (*found, *(source for file in stanzas for source in parse_stanzas(file.read_text())))


def parse_lines(text: str) -> Iterable[Source]:
    """``deb [options] address suite component…`` lines."""
    for line in text.splitlines():
        found = re.match(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<address>\S+)\s+(?P<suite>\S+)\s+\S+", line.strip())
        if found:
            signer = re.search(r"signed-by=(\S+)", found["options"] or "", re.IGNORECASE)
            yield Source(found["address"], (found["suite"],), signer[1] if signer else None)


def parse_stanzas(text: str) -> Iterable[Source]:
    """deb822 paragraphs; a disabled one and a source-only one are left out; an inline key is not used."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
        fields = {
            key.strip().lower(): value.strip()
            for key, colon, value in (line.partition(":") for line in paragraph.splitlines() if line[:1].strip())
            if colon
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        signer = fields.get("signed-by", "")
        for address in fields.get("uris", "").split():
            yield Source(address, tuple(fields.get("suites", "").split()), signer if signer.startswith("/") else None)


def pick_source(sources: Iterable[Source], codename: str) -> Source | None:
    """The first mirror that carries this release itself (not only its updates or its security fixes)."""
    return next((Source(one.address, (codename,), one.signed_by) for one in sources if codename in one.suites), None)


def source_lines(source: Source, distribution: str) -> str:
    """A sources.list for the release and, on Debian, its backports."""
    options = f" [signed-by={source.signed_by}]" if source.signed_by else ""
    codename = source.suites[0]
    if distribution == "debian":
        suites, components = [codename, f"{codename}-backports"], "main"
    else:
        suites, components = [codename], "main universe"
    return "".join(f"deb{options} {source.address} {suite} {components}\n" for suite in suites)


def pick_version(madison: str, least: tuple[int, ...]) -> str | None:
    """The lowest version that is new enough: the release's own before its backports."""
    versions = {line.split("|")[1].strip() for line in madison.splitlines() if line.count("|") >= 2}
    enough = [version for version in versions if upstream(version) >= least]
    return min(enough, key=upstream, default=None)


def upstream(version: str) -> tuple[int, ...]:
    """The numbers of a package version's upstream part: ``1:2.0.21-1~bpo12+1`` is (2, 0, 21)."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split(":", 1)[-1].split("-")[0]))


class _Apt:
    """apt with its own lists, cache and sources below one folder."""

    def __init__(self, folder: Path, fix: str) -> None:
        self._folder = folder
        self._fix = fix
        for part in ("lists/partial", "cache/archives/partial", "debs"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        self._options = [
            "-o", f"Dir::Etc::sourcelist={folder}/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null",
            "-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache",
            "-o", "APT::Sandbox::User=", "-o", "Acquire::Languages=none",
            "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "-o", "APT::Update::Post-Invoke-Success::=", "-o", "APT::Get::List-Cleanup=false",
        ]  # fmt: skip

    def write_sources(self, text: str) -> None:
        (self._folder / "sources.list").write_text(text)

    def run(self, tool: str, *arguments: str, options: bool = True) -> str:
        command = [tool, *(self._options if options else []), *arguments]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, cwd=self._folder / "debs", timeout=TIMEOUT_S, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            raise SetupError(f"{tool} {arguments[0]} failed ({said[-1][:200] if said else ''}); {self._fix}") from error
        return answer.stdout

    def download(self, name: str, version: str, backports: str | None) -> Sequence[Path]:
        """The package and, beside it, every library it needs that the system does not have."""
        release = ["-t", backports] if backports else []
        wanted, known = [name], {name}
        for package in wanted:
            listing = self.run("apt-cache", *release, "depends", "--no-recommends", "--no-suggests", package)
            needed = re.findall(r"^\s+(?:Pre)?Depends: (lib[^\s<>]+)", listing, re.MULTILINE)
            fresh = [
                one for one in needed if one not in known and (one.startswith("libmosquitto") or not _installed(one))
            ]
            known.update(fresh)
            wanted.extend(fresh)
        self.run("apt-get", *release, "download", f"{name}={version}", *wanted[1:])
        return sorted((self._folder / "debs").glob("*.deb"))


def _installed(package: str) -> bool:
    answer = subprocess.run(["dpkg-query", "-W", "-f=${Status}", package], capture_output=True, text=True, check=False)
    return answer.stdout == "install ok installed"
