"""Two wheels: the edge one small and complete, the cloud one without a file of the other."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from infra.wheels import CLOUD_ROOMS, EDGE_ROOMS, build_wheels


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_two_wheels_and_what_is_in_them(tmp_path: Path) -> None:
    edge, cloud = build_wheels(tmp_path / "dist")
    assert edge.name.startswith("fleetstream_edge-") and cloud.name.startswith("fleetstream-")
    assert {name.split("/")[0] for name in contents(edge)} == set(EDGE_ROOMS)
    assert {name.split("/")[0] for name in contents(cloud)} <= set(CLOUD_ROOMS)
    assert {"contracts/signals.toml", "contracts/packet_v1.avsc", "edge_agent/agent.py"} <= contents(edge)
    assert {"infra/jars.toml", "infra/migrations/001_identity.sql"} <= contents(cloud)
    assert edge.stat().st_size < 400_000
    with zipfile.ZipFile(edge) as archive:
        archive.extractall(tmp_path / "edge")
    script = "import edge_agent.wiring, contracts.signals as s; print(len(s.catalogue()))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "edge", capture_output=True, text=True, check=True
    )
    assert int(done.stdout) >= 80
