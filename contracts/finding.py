"""What a detector says about one asset: seen, expected, since when, how sure, what to do.

The identity is a function of what was judged (deployment and its version, device, cause, start of the excursion), so a
replay of the same log names the same findings. ``revision`` rises with each thing said of the excursion; readers keep
the highest. ``score`` is in the detector's own unit; ``probability`` is how rare the detector holds such a reading to
be on a healthy device, where it can tell.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

from contracts.errors import Rejected

FINDING_FORMAT = 1
MAX_FINDING_BYTES = 16_384


class Severity(IntEnum):
    """How soon a person should look: at the next service, this week, now, stop the machine."""

    NOTE = 1
    WARNING = 2
    ALARM = 3
    CRITICAL = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """One excursion of one device; times are Unix epoch milliseconds, values in the signal's catalogue unit.

    ``deployment`` is the name under which a detector with frozen parameters works (``anomaly.deployed``), and
    ``deployment_version`` its fingerprint. ``score``, ``observed``, the band, ``regime`` and ``contributions`` are
    those of the worst reading so far; ``signals`` begins with the one that carried most of it. ``at_ms`` is the event
    time up to which the finding speaks, ``readings`` the number of moments in alarm until then. ``model`` is the
    SHA-256 of the file of the trained model that judged, "" where the parameters were declared. ``retracted``: readings
    that came late contradict it; the rest is what it had said.
    """

    device: str
    deployment: str
    deployment_version: str
    detector: str
    cause: str
    signals: tuple[int, ...]
    started_at_ms: int
    at_ms: int
    severity: Severity
    score: float
    threshold: float
    observed: float | None = None
    expected_low: float | None = None
    expected_high: float | None = None
    probability: float | None = None
    regime: int | None = None
    contributions: tuple[tuple[int, float], ...] = field(default=())
    advice: str = ""
    closed_at_ms: int | None = None
    readings: int = 1
    readings_lost: bool = False
    revision: int = 1
    tenant: str = ""
    asset: str | None = None
    model: str = ""
    retracted: bool = False

    @property
    def id(self) -> str:
        """32 hexadecimal digits, the same on every replay."""
        return finding_id(self.device, self.deployment, self.deployment_version, self.cause, self.started_at_ms)


def finding_id(device: str, deployment: str, version: str, cause: str, started_at_ms: int) -> str:
    """32 hexadecimal digits that name one excursion."""
    key = "\0".join((device, deployment, version, cause, str(started_at_ms)))
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def encode_finding(finding: Finding) -> bytes:
    """JSON; a number that is not finite travels as null where the field may be empty, else it is refused."""
    body = asdict(finding)
    for name in ("observed", "expected_low", "expected_high", "probability"):
        if body[name] is not None and not math.isfinite(body[name]):
            body[name] = None
    text = json.dumps({"v": FINDING_FORMAT, "id": finding.id, **body}, separators=(",", ":"), allow_nan=False)
    return text.encode()


def decode_finding(data: bytes) -> Finding:
    """Raises Rejected('bad_finding')."""
    if len(data) > MAX_FINDING_BYTES:
        raise Rejected("bad_finding", f"{len(data)} bytes")
    try:
        body = json.loads(data)
        if body.pop("v") != FINDING_FORMAT:
            raise Rejected("bad_finding", "unknown format")
        return _finding(body)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Rejected("bad_finding", str(error)) from error


def _finding(body: dict[str, Any]) -> Finding:
    told = body.pop("id")
    body["severity"] = Severity(body["severity"])
    body["signals"] = tuple(int(number) for number in body["signals"])
    body["contributions"] = tuple((int(number), float(share)) for number, share in body["contributions"])
    finding = Finding(**body)
    if finding.id != told:
        raise Rejected("bad_finding", "its identity does not follow from its content")
    return finding
