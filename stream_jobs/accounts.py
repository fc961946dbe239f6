"""Agents' own accounts and the gateway's dead letters as rows, pure. Text from outside is made safe for the store."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from contracts.errors import Rejected
from contracts.stamp import decode_dead_letter
from contracts.status import AgentStatus, decode_status
from stream_jobs.blocks import LARGEST_NUMBER
from stream_jobs.decode import MAX_STAMP_MS, read_stamps
from stream_jobs.records import Records, Refusal, Stamps

MAX_TEXT = 500
"""Longest piece of foreign text that is kept beside the bytes."""

_LARGEST_INT4 = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Account:
    """One heartbeat with the gateway's stamp; ``device_key`` and ``tenant_id`` still want checking."""

    row: int
    device_key: int
    tenant_id: int
    received_ms: int
    status: AgentStatus

    def as_json(self) -> dict[str, object]:
        """The whole account, for the column ``account``."""
        return {name: clean(value) if isinstance(value, str) else value for name, value in asdict(self.status).items()}


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """One dead letter, ready for the table ``refused``."""

    row: int
    tenant_id: int | None
    device: str
    boot_epoch: int | None
    seq: int | None
    reason: str
    detail: str
    mqtt_topic: str
    received_ms: int


def read_accounts(records: Records) -> tuple[list[Account], Stamps, list[Refusal]]:
    """Heartbeats that make sense, and refusals for the rest."""
    stamps = read_stamps(records.stamp)
    accounts, refusals = [], []
    for row, value in enumerate(records.value.to_pylist()):
        try:
            accounts.append(_account(row, value or b"", stamps))
        except Rejected as error:
            refusals.append(Refusal(row, error.reason, {"detail": clean(error.detail)}))
    return accounts, stamps, refusals


def read_dead_letters(records: Records) -> tuple[list[RefusedRow], list[Refusal]]:
    """Dead letters as rows, and refusals for those that nobody can read."""
    rows, refusals = [], []
    for row, header in enumerate(records.stamp.to_pylist()):
        try:
            rows.append(_refused(row, header or b""))
        except Rejected as error:
            refusals.append(Refusal(row, error.reason, {"detail": clean(error.detail)}))
    return rows, refusals


def clean(text: str) -> str:
    """Bounded text without what PostgreSQL cannot hold (NUL, lone surrogates)."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd")


def _account(row: int, value: bytes, stamps: Stamps) -> Account:
    if not stamps.valid[row]:
        raise Rejected("bad_stamp")
    status = decode_status(value)
    numbers = [number for number in asdict(status).values() if isinstance(number, int)]
    if any(not -(2**63) <= number < 2**63 for number in numbers):
        raise Rejected("bad_status", "a number is out of bounds")
    if not (1 <= status.boot_epoch <= LARGEST_NUMBER and 1 <= status.next_seq <= LARGEST_NUMBER):
        raise Rejected("bad_status", "boot_epoch and next_seq start at 1")
    if not isinstance(status.device, str) or not isinstance(status.agent_version, str):
        raise Rejected("bad_status", "a name is not text")
    return Account(row, int(stamps.device_key[row]), int(stamps.tenant_id[row]), int(stamps.received_ms[row]), status)


def _refused(row: int, header: bytes) -> RefusedRow:
    letter = decode_dead_letter(header)
    numbers = (letter.received_ms, letter.tenant_id, letter.boot_epoch, letter.seq)
    texts = (letter.device, letter.reason, letter.detail, letter.mqtt_topic)
    if not all(type(number) is int for number in numbers) or not all(isinstance(text, str) for text in texts):
        raise Rejected("bad_dead_letter", "a field has the wrong type")
    if not 0 < letter.received_ms < MAX_STAMP_MS or not 0 <= letter.tenant_id <= _LARGEST_INT4:
        raise Rejected("bad_dead_letter", "a number is out of bounds")
    identity = [number if 1 <= number <= LARGEST_NUMBER else None for number in (letter.boot_epoch, letter.seq)]
    device, reason, detail, topic = map(clean, texts)
    return RefusedRow(
        row, letter.tenant_id or None, device, identity[0], identity[1], reason, detail, topic, letter.received_ms
    )
