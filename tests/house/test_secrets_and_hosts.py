"""No file names a package index, a machine's path or a secret; lock files carry hashes and no addresses."""

from __future__ import annotations

import re
import subprocess

from tests.house.tree import ROOT

# written in pieces, so that this file does not find itself
FORBIDDEN = [
    re.compile(pattern)
    for pattern in (
        r"py" + r"pi\.org", r"python" + r"hosted", r"repo1?\.maven", r"repo\.maven\.apache", r"deb\.deb" + r"ian\.org",
        r"registry\.npm" + r"js", r"archive\.ubun" + r"tu", r"proxy\.gol" + r"ang",
        r"BEGIN (EC |RSA )?PRIV" + r"ATE KEY",
        r"/wo" + r"rk/", r"/ro" + r"ot/",
    )
]  # fmt: skip


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name]


def test_no_file_names_an_index_a_machine_or_a_secret() -> None:
    found = [
        f"{name}: {pattern.pattern}"
        for name in tracked()
        if (path := ROOT / name).is_file()
        for pattern in FORBIDDEN
        if pattern.search(path.read_bytes().decode("utf-8", "replace"))
    ]
    assert not found


def test_every_pinned_dependency_has_a_hash() -> None:
    text = (ROOT / "requirements" / "lock.txt").read_text()
    pins = re.findall(r"^([A-Za-z0-9_.\[\]-]+)==\S+.*?(?=^[A-Za-z]|\Z)", text, re.M | re.S)
    blocks = re.split(r"^(?=[A-Za-z])", text, flags=re.M)[1:]
    assert len(blocks) == len(pins) > 40
    assert all("--hash=sha256:" in block for block in blocks)
    assert "http://" not in text and "https://" not in text
