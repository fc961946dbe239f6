"""Every `fleetstream` line of README and how-to pages is run against a real stack and must succeed.

Lines that cannot be run here stand in ``ELSEWHERE``, each with the reason and with the test that runs that command.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.session import Session

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs" / "how-to").glob("*.md")))
RECORDING = """Time,Engine RPM [RPM],Vehicle Speed Sensor [km/h]
08:57:05.521,864.0,
08:57:05.611,864.0,0.0
08:57:05.711,901.5,0.0
08:57:05.811,901.5,3.0
"""


FLEET = "device,asset,groups\ndoc-van-7,Van 7,Vans\ndoc-van-8,Van 8,Vans;Depot\n"
RESTORE, CRASH = "docs/how-to/restore-after-losing-the-database.md", "docs/how-to/read-a-crash-record.md"
BACKUP = "docs/how-to/back-up-and-restore.md"
ONE_STACK = "it starts or ends the stack, which the other tests share", "tests/infra/test_cli.py"
NEEDS_RECORD = "it needs the SHA-256 of a record, which only a crash makes", "tests/walk/test_crash.py"
MODELS, NEEDS_MODEL = "docs/how-to/train-a-model.md", "it needs hours of archived readings"
ELSEWHERE = {
    ("docs/how-to/ask-fleet-questions.md", "fleetstream facts"): (
        "it needs a table of one's own vehicles",
        "tests/infra/test_facts.py",
    ),
    **{
        (MODELS, f".venv/bin/fleetstream models {verb}"): (NEEDS_MODEL, "tests/infra/test_models_cli.py")
        for verb in ("train", "compare", "promote", "rollback")
    },
    (RESTORE, "fleetstream up --detach"): ONE_STACK,
    (RESTORE, "fleetstream down"): ONE_STACK,
    (RESTORE, "fleetstream restore"): ("it refuses a store that holds devices", "tests/infra/test_cli.py"),
    (BACKUP, "fleetstream up --detach"): ONE_STACK,
    (BACKUP, "fleetstream down"): ONE_STACK,
    (BACKUP, "fleetstream backup restore"): ("it refuses a store that holds rows", "tests/infra/test_backup.py"),
    (BACKUP, "fleetstream backup verify"): ("it reads the folder that create made", "tests/infra/test_backup.py"),
    (CRASH, "fleetstream edr show"): NEEDS_RECORD,
    (CRASH, "fleetstream edr export"): NEEDS_RECORD,
    (CRASH, "fleetstream edr verify"): NEEDS_RECORD,
}
"""(page, how the line begins) to (why it is not run here, the test that runs it)."""


def shown() -> list[tuple[str, str]]:
    """(page, command) for each line of a fence that calls our command line, by its path or by its name alone."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```\w*\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S):
            found += [(page, line) for line in block.splitlines() if re.match(r"(\.venv/bin/)?fleetstream ", line)]
    return found


def elsewhere(page: str, command: str) -> list[tuple[str, str]]:
    return [(of, start) for of, start in ELSEWHERE if of == page and f"{command} ".startswith(f"{start} ")]


def documented() -> list[tuple[str, str]]:
    """What is run here."""
    return [one for one in shown() if not elsewhere(*one)]


def test_the_pages_show_commands() -> None:
    assert {page for page, _ in documented()} >= {"README.md", "docs/how-to/connect-a-device.md"}
    assert len(documented()) >= 6


def test_both_forms_are_run_and_every_exception_is_needed() -> None:
    assert (RESTORE, "fleetstream migrate") in documented()
    assert {start for one in shown() for start in elsewhere(*one)} == set(ELSEWHERE)
    assert all((ROOT / test).is_file() for _, test in ELSEWHERE.values())


@pytest.mark.parametrize(("page", "command"), documented(), ids=lambda value: value[-60:])
def test_a_documented_command_works(line: Session, tmp_path: Path, page: str, command: str) -> None:
    (tmp_path / "recordings").mkdir()
    with gzip.open(tmp_path / "recordings" / "2020-01-02_Test.csv.gz", "wt", encoding="utf-8") as file:
        file.write(RECORDING)
    (tmp_path / "fleet.csv").write_text(FLEET, encoding="utf-8")
    done = subprocess.run(
        f"{Path(sys.executable).parent}/{command.removeprefix('.venv/bin/')}",
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "FLEETSTREAM_HOME": str(line.stack.settings.home), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{page}: {done.stderr[-1500:]}"
    assert done.stdout.strip()
