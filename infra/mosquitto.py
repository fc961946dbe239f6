"""Mosquitto: its settings, and where a new enough one comes from when the machine has none.

Version 2.0.11 breaks the receive-maximum that the gateway relies on, so 2.0.18 is the least. When PATH has
none, the distribution's package (Debian: also from backports) is fetched with apt's own download command from
the mirror that the machine already uses, and unpacked into the cache: no root, nothing installed.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from contracts.packet import MAX_FRAME_BYTES
from infra.apt import unpack_package
from infra.ca import BROKER_NAME, GATEWAY_WORKERS, Credentials
from infra.errors import SetupError
from infra.paths import exclusive
from infra.processes import Command

LEAST_VERSION = (2, 0, 18)
PACKET_ROOM_BYTES = 4 * 1024
"""Room above the largest frame for the MQTT header, topic and properties."""

WINDOW = 2_000
QUEUE_MESSAGES = 1_000_000
QUEUE_BYTES = 1024 * 1024 * 1024
"""A gateway may be away while this much waits; what does not fit stays in the agents' spools."""

FIX = "install Mosquitto 2.0.18 or newer so that `mosquitto` is on PATH"


@dataclass(frozen=True, slots=True)
class Program:
    """A Mosquitto that can be run, with the folder of libraries that it needs beside the system's."""

    path: Path
    libraries: Path | None
    version: tuple[int, ...]

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.libraries)} if self.libraries else {}


@dataclass(frozen=True, slots=True)
class Mosquitto:
    """One broker below ``home``: TLS on a loopback port, certificates are the only way in."""

    home: Path
    port: int
    log_file: Path
    program: Program
    credentials: Credentials

    def prepare(self) -> None:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.home / "acl").write_text(acl_text())
        (self.home / "acl").chmod(0o600)
        (self.home / "mosquitto.conf").write_text(self.settings_text())

    def command(self) -> Command:
        return Command(
            name="mosquitto",
            arguments=[str(self.program.path), "-c", str(self.home / "mosquitto.conf")],
            log_file=self.log_file,
            environment=self.program.environment,
            folder=self.home,
        )

    def ready(self) -> bool:
        """Whether our own broker answers: its certificate must be signed by our authority."""
        context = ssl.create_default_context(cafile=self.credentials.ca)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as plain:
                context.wrap_socket(plain, server_hostname=BROKER_NAME).close()
        except OSError:
            return False
        return True

    def settings_text(self) -> str:
        """mosquitto.conf; the reasons stand beside the lines that need one."""
        user = "user root\n" if os.geteuid() == 0 else ""
        return f"""{user}log_dest stderr
log_type error
log_type warning
log_type notice
connection_messages false
listener {self.port} 127.0.0.1
cafile {self.credentials.ca}
certfile {self.credentials.certificate}
keyfile {self.credentials.key}
tls_version tlsv1.2
require_certificate true
allow_anonymous false
# The certificate is the identity; without the second line a stolen client id could evict another device.
use_identity_as_username true
use_username_as_clientid true
acl_file {self.home / "acl"}
max_packet_size {MAX_FRAME_BYTES + PACKET_ROOM_BYTES}
max_inflight_messages {WINDOW}
# A full queue drops silently: bounded by bytes, sized for a long absence of the gateway.
max_queued_messages {QUEUE_MESSAGES}
max_queued_bytes {QUEUE_BYTES}
max_keepalive 120
set_tcp_nodelay true
persistence true
persistence_location {self.home}/
autosave_interval 60
persistent_client_expiration 14d
"""


def acl_text() -> str:
    """Who may do what: a device its own two branches, a gateway worker all of them."""
    workers = "".join(f"user {name}\ntopic read v1/+/up/#\ntopic write v1/+/down/#\n\n" for name in GATEWAY_WORKERS)
    return f"{workers}pattern write v1/%u/up/#\npattern read v1/%u/down/#\n"


def find_mosquitto(cache: Path) -> Program:
    """A new enough Mosquitto, fetched into the cache when needed. Raises SetupError with the fix."""
    with exclusive(cache / "mosquitto" / ".lock"):
        return installed_mosquitto(cache) or _fetched(cache / "mosquitto")


def installed_mosquitto(cache: Path) -> Program | None:
    """A new enough Mosquitto that is there already: named by FLEETSTREAM_MOSQUITTO, on PATH or in the cache."""
    search = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    for name in filter(None, (os.environ.get("FLEETSTREAM_MOSQUITTO"), shutil.which("mosquitto", path=search))):
        version = _version(Path(name), None)
        if version >= LEAST_VERSION:
            return Program(Path(name), None, version)
    return _unpacked(cache / "mosquitto")


def _unpacked(folder: Path) -> Program | None:
    root = folder / "root"
    path = root / "usr" / "sbin" / "mosquitto"
    library = next(iter(sorted(root.glob("usr/lib/**/libcjson.so.1"))), None)
    libraries = library.parent if library else next(iter(root.glob("usr/lib/*-linux-gnu*")), None)
    version = _version(path, libraries) if path.is_file() else ()
    return Program(path, libraries, version) if version >= LEAST_VERSION else None


def _fetched(folder: Path) -> Program:
    unpack_package("mosquitto", LEAST_VERSION, folder, FIX)
    program = _unpacked(folder)
    if program is None:
        raise SetupError(f"The unpacked Mosquitto does not run on this machine; {FIX}")
    return program


def _version(path: Path, libraries: Path | None) -> tuple[int, ...]:
    """The version that ``mosquitto -h`` prints, () when it does not run."""
    environment = {**os.environ, **({"LD_LIBRARY_PATH": str(libraries)} if libraries else {})}
    try:
        answer = subprocess.run([path, "-h"], capture_output=True, text=True, env=environment, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.search(r"mosquitto version (\d+)\.(\d+)\.(\d+)", answer.stdout)
    return tuple(map(int, found.groups())) if found else ()
