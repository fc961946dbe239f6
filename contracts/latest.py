"""The newest value of one signal of one device as it stands in the compacted topic ``latest``: a row of the table.

Key: ``{device}/{signal path}`` (neither has a slash). Values are exact: JSON numbers are read back as the same doubles;
what JSON cannot say is null (NaN) or a word. Of two records the one with the higher ``place`` is the newer one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from contracts.errors import Rejected

LATEST_FORMAT = 1


@dataclass(frozen=True, slots=True)
class LatestValue:
    """``value`` may be NaN (see ``quality``); times are Unix epoch milliseconds."""

    device: str
    signal: str
    measured_ms: int
    boot_epoch: int
    seq: int
    pos: int
    value: float
    quality: int
    received_ms: int

    @property
    def key(self) -> str:
        return f"{self.device}/{self.signal}"

    @property
    def place(self) -> tuple[int, int, int, int]:
        """What decides which of two values is the newer one, as in the store."""
        return self.measured_ms, self.boot_epoch, self.seq, self.pos

    def same_as(self, other: LatestValue) -> bool:
        """Equal in every field; NaN is equal to NaN."""
        return encode_latest(self) == encode_latest(other)


def encode_latest(latest: LatestValue) -> bytes:
    value = latest.value
    said = None if math.isnan(value) else str(value) if math.isinf(value) else value
    body = {"v": LATEST_FORMAT, **{name: getattr(latest, name) for name in LatestValue.__slots__}, "value": said}
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def decode_latest(data: bytes) -> LatestValue:
    """Raises Rejected('bad_latest')."""
    try:
        body = json.loads(data)
        if body.pop("v") != LATEST_FORMAT:
            raise Rejected("bad_latest", "unknown format")
        said = body.pop("value")
        return LatestValue(**body, value=math.nan if said is None else float(said))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Rejected("bad_latest", str(error)) from error
