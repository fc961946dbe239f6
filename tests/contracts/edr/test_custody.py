"""Who may read what: insurers nothing without a legal basis of their own, and nobody a record without one."""

from __future__ import annotations

from itertools import product

import pytest

from contracts.edr.custody import ACTIONS, BASES, OVERVIEW_ACTIONS, RECORD_ACTIONS, Request, decide, entry_fields

ROLES = ("operator", "maintenance", "insurer", "auditor", "admin")
GOOD = {"purpose": "claim 7", "reference": "consent 12"}


def ask(role: str, action: str, **more: str) -> Request:
    return Request("somebody", "k1", role, action, "ab" * 32, **more)


@pytest.mark.parametrize(("role", "action"), list(product(ROLES, RECORD_ACTIONS)))
def test_no_record_is_read_without_a_legal_basis(role: str, action: str) -> None:
    assert not decide(ask(role, action, **GOOD)).allowed
    assert not decide(ask(role, action, **GOOD, basis="curiosity")).allowed
    assert not decide(ask(role, action, basis="owner_consent", reference="12")).allowed
    assert not decide(ask(role, action, basis="owner_consent", purpose="claim")).allowed
    assert not decide(ask(role, action, basis="owner_consent", purpose="   ", reference=" ")).allowed


def test_with_a_basis_by_role() -> None:
    allowed = {
        (role, action)
        for role, action in product(ROLES, RECORD_ACTIONS)
        if decide(ask(role, action, **GOOD, basis="owner_consent")).allowed
    }
    assert allowed == set(product(("operator", "insurer", "admin"), RECORD_ACTIONS))


def test_overviews_by_role_and_never_for_insurers() -> None:
    for role, action in product(ROLES, OVERVIEW_ACTIONS):
        assert decide(ask(role, action)).allowed == (role in OVERVIEW_ACTIONS[action])
    assert not any(decide(ask("insurer", action)).allowed for action in ACTIONS)


@pytest.mark.parametrize("basis", BASES)
def test_only_some_bases_name_anybody(basis: str) -> None:
    named = decide(ask("admin", "linkage", **GOOD, basis=basis))
    assert named.allowed == (basis not in ("research", "investigation"))
    assert decide(ask("admin", "show", **GOOD, basis=basis)).allowed


def test_an_emergency_needs_no_document_and_is_not_the_insurer_s() -> None:
    assert decide(ask("operator", "show", purpose="rescue", basis="emergency")).allowed
    assert decide(ask("insurer", "show", basis="emergency", **GOOD)).reason == "basis_not_for_role"


def test_unknown_actions_and_endless_texts_are_refused() -> None:
    assert decide(ask("admin", "delete")).reason == "unknown_action"
    assert decide(ask("admin", "show", purpose="x" * 501, basis="emergency")).reason == "too_long"


def test_an_entry_says_the_request_and_the_answer() -> None:
    asked = ask("insurer", "show")
    assert entry_fields(asked, decide(asked))[-2:] == ("refused", "no_legal_basis")
    assert len(entry_fields(asked, decide(asked))) == 10
