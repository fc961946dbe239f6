"""The provisioning files, made from the boards: what stands in ``provisioning/`` and is committed."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards.grafana.boards import BOARDS
from dashboards.grafana.panels import DATASOURCE_UID

FOLDER = Path(__file__).parent / "provisioning"
FOLDER_UID = "fleetstream"
DATASOURCE_FILE = f"""\
# PostgreSQL with a read-only login: a tenant's own (`fleetstream tenant --help`) or the stack's reader.
apiVersion: 1
datasources:
  - name: Fleetstream
    uid: {DATASOURCE_UID}
    type: grafana-postgresql-datasource
    access: proxy
    url: $FLEETSTREAM_STORE
    user: $FLEETSTREAM_SQL_USER
    jsonData:
      database: $FLEETSTREAM_DATABASE
      sslmode: $FLEETSTREAM_SSLMODE
      maxOpenConns: 5
      postgresVersion: 1600
    secureJsonData:
      password: $FLEETSTREAM_SQL_PASSWORD
"""
PROVIDER_FILE = f"""\
apiVersion: 1
providers:
  - name: Fleetstream
    folder: Fleetstream
    folderUid: {FOLDER_UID}
    type: file
    allowUiUpdates: true
    options:
      path: /etc/grafana/provisioning/boards
"""


def board_text(board: dict[str, object]) -> str:
    return json.dumps(board, indent=1, ensure_ascii=False) + "\n"


def files() -> dict[str, str]:
    """Path under ``provisioning/`` to text."""
    boards = [make() for make in BOARDS]
    return {
        "datasources/fleetstream.yaml": DATASOURCE_FILE,
        "dashboards/fleetstream.yaml": PROVIDER_FILE,
        **{f"boards/{board['uid']}.json": board_text(board) for board in boards},
    }
