"""What can go wrong here, in the three answers every room knows."""

from __future__ import annotations

from contracts.errors import Fatal, Rejected


class BadState(Rejected):
    """Bytes that are not a state of this detector with these parameters: start afresh and replay the topic."""

    def __init__(self, detail: str) -> None:
        super().__init__("bad_state", detail)


class BadParameters(Fatal):
    """Parameters outside of what a detector can work with; the message names the one to change."""


class BadModel(Rejected):
    """Bytes that are not a model which this code would have written: it judges nothing, the others go on."""

    def __init__(self, detail: str) -> None:
        super().__init__("bad_model", detail)
