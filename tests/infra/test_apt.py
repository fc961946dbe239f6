"""Reading a machine's apt configuration and choosing a package version."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import apt
from infra.apt import Source, parse_lines, parse_os_release, parse_stanzas, pick_source, pick_version, source_lines
from infra.errors import SetupError

STANZAS = """\
Types: deb deb-src
# a comment inside of a stanza
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://other.example/x
Suites: nodistro
Enabled: no
Components: main

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://inline.example/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----
"""

LINES = """\
# deb http://off.example/ubuntu noble main
deb [arch=amd64 signed-by=/usr/share/keyrings/ubuntu.gpg] http://mirror.example/ubuntu noble main universe
deb-src http://sources.example/ubuntu noble main
deb http://mirror.example/ubuntu noble-updates main
"""


def test_deb822_stanzas() -> None:
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert list(parse_stanzas(STANZAS)) == [
        Source("http://mirror.example/debian", ("bookworm", "bookworm-updates"), keyring),
        Source("http://mirror.example/debian-security", ("bookworm-security",)),
        Source("http://inline.example/debian", ("bookworm",)),
    ]


def test_one_line_sources() -> None:
    assert list(parse_lines(LINES)) == [
        Source("http://mirror.example/ubuntu", ("noble",), "/usr/share/keyrings/ubuntu.gpg"),
        Source("http://mirror.example/ubuntu", ("noble-updates",)),
    ]


def test_the_mirror_of_the_release_itself_is_taken() -> None:
    source = pick_source([Source("http://a.example", ("bookworm-security",)), *parse_stanzas(STANZAS)], "bookworm")
    assert source is not None and source.address == "http://mirror.example/debian"
    assert pick_source(parse_stanzas(STANZAS), "trixie") is None


def test_backports_are_asked_on_debian_only() -> None:
    debian = source_lines(Source("http://m.example", ("bookworm",), "/k.gpg"), "debian").splitlines()
    assert debian == [
        "deb [signed-by=/k.gpg] http://m.example bookworm main",
        "deb [signed-by=/k.gpg] http://m.example bookworm-backports main",
    ]
    ubuntu = source_lines(Source("http://m.example", ("noble",)), "ubuntu")
    assert ubuntu == "deb http://m.example noble main universe\n"


def test_the_lowest_version_that_is_new_enough_is_taken() -> None:
    madison = """\
 mosquitto | 2.0.21-1~bpo12+1 | http://m.example bookworm-backports/main amd64 Packages
 mosquitto | 2.0.11-1.2+deb12u2 | http://m.example bookworm/main amd64 Packages
"""
    assert pick_version(madison, (2, 0, 18)) == "2.0.21-1~bpo12+1"
    assert pick_version(madison, (2, 0, 11)) == "2.0.11-1.2+deb12u2"
    assert pick_version(madison, (2, 1)) is None


@given(
    st.tuples(*[st.integers(0, 99)] * 3),
    st.sampled_from(["", "1:", "12:"]),
    st.sampled_from(["-1", "-1.2+deb12u2", "-1~bpo12+1", ""]),
)
def test_upstream_numbers(numbers: tuple[int, int, int], epoch: str, revision: str) -> None:
    assert apt.upstream(f"{epoch}{'.'.join(map(str, numbers))}{revision}") == numbers


def test_os_release() -> None:
    assert parse_os_release('ID=debian\nVERSION_CODENAME="bookworm"\n')["VERSION_CODENAME"] == "bookworm"


def test_a_machine_without_apt_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"no apt-get to fetch one; install mosquitto"):
        apt.unpack_package("mosquitto", (2, 0, 18), tmp_path, "install mosquitto")
