"""Every `fleetstream` line of README and how-to pages is run against a real stack and must succeed."""

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


def documented() -> list[tuple[str, str]]:
    """(page, command) for each line of a ``sh`` fence that calls our command line."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S):
            found += [(page, line) for line in block.splitlines() if line.startswith(".venv/bin/fleetstream ")]
    return found


def test_the_pages_show_commands() -> None:
    assert {page for page, _ in documented()} >= {"README.md", "docs/how-to/connect-a-device.md"}
    assert len(documented()) >= 6


@pytest.mark.parametrize(("page", "command"), documented(), ids=lambda value: value[-60:])
def test_a_documented_command_works(line: Session, tmp_path: Path, page: str, command: str) -> None:
    (tmp_path / "recordings").mkdir()
    with gzip.open(tmp_path / "recordings" / "2020-01-02_Test.csv.gz", "wt", encoding="utf-8") as file:
        file.write(RECORDING)
    done = subprocess.run(
        command.replace(".venv/bin/", f"{Path(sys.executable).parent}/"),
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "FLEETSTREAM_HOME": str(line.stack.settings.home), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, f"{page}: {done.stderr[-1500:]}"
    assert done.stdout.strip()
