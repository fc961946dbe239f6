"""The folder of models: files named by their SHA-256, written once, checked at each reading.

The file comes before its row: a crash between the two leaves a file that nothing names, never a row without its file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anomaly.errors import BadModel
from anomaly.models.file import MAX_BYTES, Model, decode, encode, sha256_of

SUFFIX: Final = ".json"
_NAME: Final = re.compile(r"[0-9a-f]{64}")
FINE, MISSING, ALTERED, UNREADABLE = "ok", "missing", "altered", "unreadable"


@dataclass(frozen=True, slots=True)
class Shelf:
    """One folder; several processes may use it at once."""

    folder: Path

    def put(self, model: Model) -> tuple[str, int]:
        """The model's name and size; durable when this returns. The same model again is the same file."""
        data = encode(model)
        decode(data)
        name = sha256_of(data)
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / f"{name}{SUFFIX}"
        draft = target.with_name(f".{name}.{os.getpid()}")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return name, len(data)

    def get(self, name: str) -> Model:
        """Raises BadModel when the file is not there, is not what its name says, or is not understood."""
        data = self._bytes(name)
        if data is None:
            raise BadModel(f"{name}: its file is missing in {self.folder}")
        if sha256_of(data) != name:
            raise BadModel(f"{name}: its file was altered, its SHA-256 is {sha256_of(data)}; bring back the original")
        return decode(data)

    def state(self, name: str) -> str:
        """``ok``, ``missing``, ``altered``, or ``unreadable`` by this code."""
        data = self._bytes(name)
        if data is None:
            return MISSING
        if sha256_of(data) != name:
            return ALTERED
        try:
            decode(data)
        except BadModel:
            return UNREADABLE
        return FINE

    def names(self) -> list[str]:
        """Every file's name, in order; drafts that a crash left are none."""
        return sorted(path.stem for path in self.folder.glob(f"*{SUFFIX}") if _NAME.fullmatch(path.stem))

    def _bytes(self, name: str) -> bytes | None:
        if not _NAME.fullmatch(name):
            raise BadModel(f"{name[:80]!r} is no model's name: wanted 64 hexadecimal digits")
        try:
            with (self.folder / f"{name}{SUFFIX}").open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except OSError:
            return None
