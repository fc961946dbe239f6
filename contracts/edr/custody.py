"""Who may read what of a crash record, and on which legal basis: one pure decision for every door.

Bases follow the Driver Privacy Act of 2015 (49 U.S.C. 30101 note; sections 24301-24303 of Public Law 114-94): data of a
recorder belong to the vehicle's owner or lessee and may be read by others only with consent, by order of a court or
another authority, in an authorised investigation, for emergency medical response, or for research. Investigation
and research may not disclose who the owner is: with them the linkage stays shut.

Every answer, yes or no, is written to the custody log before anything is read. This is our reading of the act, not
legal advice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BASES: Final = {
    "owner_consent": "the owner or lessee consented, in writing, electronically or recorded",
    "court_order": "a court or another authority having jurisdiction ordered it",
    "investigation": "an investigation or inspection authorised by law",
    "emergency": "to determine the need for, or to facilitate, emergency medical response",
    "research": "traffic safety research, nobody identified",
}
NAMING_BASES: Final = frozenset({"owner_consent", "court_order", "emergency"})
"""Bases that may also tell who and where: investigation and research may not name the owner."""

UNREFERENCED_BASES: Final = frozenset({"emergency"})
"""Bases without a document to refer to; the others name theirs (a consent's or docket's number)."""

ANONYMOUS_BASES: Final = frozenset({"research"})
"""Bases under which a record is shown without the device, the asset and the hour that lead to somebody."""

LIST, NOTICES, POSITION, CUSTODY = "list", "notices", "position", "custody"
SHOW, REPORT, EXPORT, LINKAGE = "show", "report", "export", "linkage"
OVERVIEW_ACTIONS: Final = {
    LIST: frozenset({"operator", "maintenance", "admin", "auditor"}),
    NOTICES: frozenset({"operator", "maintenance", "admin"}),
    POSITION: frozenset({"operator", "admin"}),
    CUSTODY: frozenset({"auditor", "admin"}),
}
"""Read by role alone: that a record exists, that there was a crash, where to send help, who read what."""

RECORD_ACTIONS: Final = {
    SHOW: frozenset({"operator", "insurer", "admin"}),
    REPORT: frozenset({"operator", "insurer", "admin"}),
    EXPORT: frozenset({"operator", "insurer", "admin"}),
    LINKAGE: frozenset({"operator", "insurer", "admin"}),
}
"""Read by role and with a legal basis of their own for every single request."""

ACTIONS: Final = (*OVERVIEW_ACTIONS, *RECORD_ACTIONS)
MAX_TEXT: Final = 500
"""Characters of a purpose or reference."""


@dataclass(frozen=True, slots=True)
class Request:
    """One wish to read. ``subject``: the record's or notice's id, empty for overviews."""

    actor: str
    key_id: str
    role: str
    action: str
    subject: str = ""
    purpose: str = ""
    basis: str = ""
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """``reason`` is a stable code; ``detail`` says what would change the answer."""

    allowed: bool
    reason: str
    detail: str = ""


def decide(asked: Request) -> Decision:
    """May this be read? Depends on the request alone."""
    roles = OVERVIEW_ACTIONS.get(asked.action) or RECORD_ACTIONS.get(asked.action)
    if roles is None:
        return Decision(False, "unknown_action", f"there is no way to {asked.action[:40]!r} a crash record")
    if max(len(asked.purpose), len(asked.reference)) > MAX_TEXT:
        return Decision(False, "too_long", f"purpose and reference have at most {MAX_TEXT} characters")
    if asked.role not in roles:
        return Decision(False, "role", f"role {asked.role} may not; it needs {', '.join(sorted(roles))}")
    if asked.action in OVERVIEW_ACTIONS:
        return Decision(True, "role")
    return _by_basis(asked)


def _by_basis(asked: Request) -> Decision:
    if not asked.basis:
        return Decision(False, "no_legal_basis", f"name the legal basis of this request: {', '.join(BASES)}")
    if asked.basis not in BASES:
        return Decision(False, "unknown_legal_basis", f"a legal basis is one of {', '.join(BASES)}")
    if not asked.purpose.strip():
        return Decision(False, "no_purpose", "say in words what the record is read for")
    if asked.basis not in UNREFERENCED_BASES and not asked.reference.strip():
        return Decision(False, "no_reference", f"{asked.basis} needs the number or name of its document")
    if asked.action == LINKAGE and asked.basis not in NAMING_BASES:
        return Decision(False, "basis_names_nobody", f"{asked.basis} does not permit to learn who and where")
    if asked.role == "insurer" and asked.basis == "emergency":
        return Decision(False, "basis_not_for_role", "an insurer facilitates no medical response")
    return Decision(True, asked.basis)


def entry_fields(asked: Request, decision: Decision) -> tuple[str, ...]:
    """What a custody entry says, in the order in which it is hashed."""
    outcome = "allowed" if decision.allowed else "refused"
    return (
        asked.actor, asked.key_id, asked.role, asked.action, asked.subject, asked.purpose, asked.basis, asked.reference,
        outcome, decision.reason,
    )  # fmt: skip
