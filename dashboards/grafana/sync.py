"""Bring boards to a Grafana server: what differs is found first and told, then written.

``compare`` is a pure function of what we have and what the server has; ``Server`` asks the server's documented HTTP API
(folders, data sources and dashboards by uid). A board that was edited on the server is drift: told, and overwritten
only when asked to.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import quote

from contracts.errors import FleetstreamError
from dashboards.grafana.files import FOLDER_UID
from dashboards.grafana.panels import DATASOURCE_UID

TIMEOUT_S = 15.0
SERVER_KEYS = frozenset({"id", "version"})
"""What the server gives every board itself; no difference of ours."""

State = Literal["new", "same", "differs"]


class GrafanaError(FleetstreamError):
    """The server refused or cannot be reached; what was written before stands, the rest is as it was."""


@dataclass(frozen=True, slots=True)
class Change:
    """One board: what it is on the server, and where it differs (JSON paths, at most ten)."""

    uid: str
    title: str
    state: State
    places: tuple[str, ...] = ()


class Boards(Protocol):
    """What sync needs from a server."""

    def board(self, uid: str) -> dict[str, Any] | None: ...
    def has_folder(self, uid: str) -> bool: ...
    def has_datasource(self, uid: str) -> bool: ...
    def make_folder(self, uid: str, title: str) -> None: ...
    def write_board(self, board: Mapping[str, Any], folder_uid: str) -> None: ...


def compare(board: Mapping[str, Any], there: Mapping[str, Any] | None) -> Change:
    """What writing ``board`` would change."""
    uid, title = str(board["uid"]), str(board["title"])
    if there is None:
        return Change(uid, title, "new")
    places = tuple(_differences(_ours(board), _ours(there), ""))
    return Change(uid, title, "differs" if places else "same", places[:10])


def _ours(board: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in board.items() if key not in SERVER_KEYS}


def _differences(ours: Any, theirs: Any, path: str) -> list[str]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return [place for key in sorted({*ours, *theirs})
                for place in _differences(ours.get(key), theirs.get(key), f"{path}/{key}")]  # fmt: skip
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [place for n, (one, other) in enumerate(zip(ours, theirs, strict=True))
                for place in _differences(one, other, f"{path}/{n}")]  # fmt: skip
    return [] if ours == theirs else [path or "/"]


def plan(boards: Sequence[Mapping[str, Any]], server: Boards) -> list[Change]:
    """Every board's state on the server; writes nothing."""
    return [compare(board, server.board(str(board["uid"]))) for board in boards]


def sync(boards: Sequence[Mapping[str, Any]], server: Boards, *, overwrite: bool) -> list[Change]:
    """Write what is new, and what differs when ``overwrite``. Raises GrafanaError; returns what was found before."""
    if not server.has_datasource(DATASOURCE_UID):
        raise GrafanaError(
            f"The server has no data source with uid {DATASOURCE_UID}; nothing was written. Provision"
            " dashboards/grafana/provisioning/datasources/fleetstream.yaml or make one with that uid, then try again."
        )
    changes = plan(boards, server)
    wanted = {change.uid for change in changes if change.state == "new" or (overwrite and change.state == "differs")}
    if wanted and not server.has_folder(FOLDER_UID):
        server.make_folder(FOLDER_UID, "Fleetstream")
    for board in boards:
        if board["uid"] in wanted:
            server.write_board(board, FOLDER_UID)
    return changes


@dataclass(frozen=True, slots=True)
class Server:
    """A Grafana server, spoken to with a service account's token."""

    url: str
    token: str

    def board(self, uid: str) -> dict[str, Any] | None:
        found = self._ask("GET", f"/api/dashboards/uid/{quote(uid)}")
        return None if found is None else dict(found["dashboard"])

    def has_folder(self, uid: str) -> bool:
        return self._ask("GET", f"/api/folders/{quote(uid)}") is not None

    def has_datasource(self, uid: str) -> bool:
        return self._ask("GET", f"/api/datasources/uid/{quote(uid)}") is not None

    def make_folder(self, uid: str, title: str) -> None:
        self._ask("POST", "/api/folders", {"uid": uid, "title": title})

    def write_board(self, board: Mapping[str, Any], folder_uid: str) -> None:
        body = {"dashboard": {**board, "id": None}, "folderUid": folder_uid, "overwrite": True,
                "message": "fleetstream grafana sync"}  # fmt: skip
        self._ask("POST", "/api/dashboards/db", body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer's JSON; None for 404. Raises GrafanaError for everything else that is not 2xx."""
        data = None if body is None else json.dumps(body).encode()
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        request = urllib.request.Request(self.url.rstrip("/") + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404 and method == "GET":
                return None
            told = error.read(500).decode(errors="replace")
            raise GrafanaError(f"{method} {path}: the server answered {error.code}: {told}") from error
        except (urllib.error.URLError, TimeoutError, ValueError) as error:
            raise GrafanaError(
                f"{self.url} does not answer as a Grafana server: {error}; nothing more was written"
            ) from error
