"""What a message about an alert says, in each of its forms. Pure: a delivery says the same however often it goes.

One fact record per delivery; a webhook gets it as JSON, people get it as text, a machine gets one line.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Final

from contracts.alert import StepKind
from contracts.command_menu import MAX_TEXT
from contracts.finding import Severity

NOTICE_FORMAT: Final = 1
HEADLINES: Final = {
    StepKind.OPENED: "", StepKind.WORSENED: "worse: ", StepKind.REOPENED: "again: ", StepKind.MOVED: "again: ",
    StepKind.ESCALATED: "nobody has acted: ", StepKind.RETRACTED: "withdrawn: ", StepKind.UNGROUPED: "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Notice:
    """One step of an alert as a message tells it; times are Unix epoch milliseconds."""

    delivery_id: int
    tenant: str
    alert_id: str
    event_no: int
    kind: str
    at_ms: int
    note: str
    asset: str | None
    device: str
    cause: str
    severity: int
    state: str
    level: int
    since_ms: int
    detector: str
    sureness: float
    signal: str | None
    unit: str | None
    observed: float | None
    expected_low: float | None
    expected_high: float | None
    advice: str | None


def as_json(notice: Notice) -> bytes:
    """The body of a webhook."""
    return json.dumps({"v": NOTICE_FORMAT, **asdict(notice)}, separators=(",", ":")).encode()


def headline(notice: Notice) -> str:
    """One line of at most ``MAX_TEXT`` characters."""
    where = notice.asset or notice.device
    grade = Severity(notice.severity).name.lower()
    text = f"{HEADLINES.get(StepKind(notice.kind), '')}{where}: {notice.cause} ({grade})"
    return "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))[:MAX_TEXT]


def as_text(notice: Notice) -> str:
    """What a person needs: what was seen, what was expected, since when, how sure, what to do."""
    lines = [headline(notice), ""]
    if notice.observed is not None:
        lines.append(f"Seen: {_number(notice.observed)} {notice.unit or ''} ({notice.signal})".rstrip())
    if (band := _band(notice)) is not None:
        lines.append(f"Expected: {band} {notice.unit or ''}".rstrip())
    lines += [
        f"Since: {_moment(notice.since_ms)}",
        f"Detector: {notice.detector}, right in about {notice.sureness:.0%} of its alerts",
        f"State: {notice.state.replace('_', ' ')}, escalated {notice.level} times",
        f"Alert: {notice.alert_id}",
    ]
    if notice.advice:
        lines += ["", notice.advice]
    return "\n".join(lines) + "\n"


def as_mail(notice: Notice, sender: str, recipient: str) -> EmailMessage:
    """A repeat has the same Message-ID, so that mail programs show it once."""
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = headline(notice), sender, recipient
    mail["Date"] = datetime.fromtimestamp(notice.at_ms / 1000, UTC)
    domain = sender.rpartition("@")[2].strip("> ") or "localhost"
    mail["Message-ID"] = f"<{notice.delivery_id}.{notice.alert_id}.{notice.event_no}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(as_text(notice))
    return mail


def as_arguments(notice: Notice) -> dict[str, Any]:
    """Of the command ``notice`` to the machine."""
    return {"text": headline(notice), "severity": notice.severity, "alert": notice.alert_id}


def _band(notice: Notice) -> str | None:
    low, high = notice.expected_low, notice.expected_high
    if low is None:
        return None if high is None else f"at most {_number(high)}"
    if high is None:
        return f"at least {_number(low)}"
    return f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:.6g}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
