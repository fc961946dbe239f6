"""The menu of commands: what the cloud may ask of a device, with which arguments, and for how long it waits.

A new command is a line here and one function in ``edge_agent/orders.py``. Both ends check arguments against this
menu: the cloud before it accepts a request, the device before it carries one out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts.errors import Rejected

MINUTE_MS: Final = 60_000
MAX_LIFE_MS: Final = 30 * 24 * 60 * MINUTE_MS
"""Longest time a command may wait for its device; a device remembers what it did at least as long."""

MAX_RANGES: Final = 200
"""Ranges in one resync; more are asked for later."""

MAX_NUMBER: Final = 2**40
MAX_TEXT: Final = 200
"""Characters of a text that a machine shows."""

PROFILES: Final = ("configured", "all", "interval")
"""Sampling profiles: the device's own rules; every reading; every reading but at least an interval apart."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. ``choices`` makes it a word, ``longest`` a text of so many characters, ``triples`` a list of
    [boot_epoch, first, last], else it is an integer."""

    name: str
    text: str
    required: bool = False
    minimum: int = 0
    maximum: int = MAX_NUMBER
    choices: tuple[str, ...] = ()
    triples: bool = False
    longest: int = 0

    def check(self, value: object) -> None:
        """Raises Rejected('bad_arguments')."""
        if self.choices:
            sound = isinstance(value, str) and value in self.choices
            wanted = f"one of {', '.join(self.choices)}"
        elif self.longest:
            sound = isinstance(value, str) and 0 < len(value) <= self.longest and value.isprintable()
            wanted = f"a printable text of 1 to {self.longest} characters"
        elif self.triples:
            sound = isinstance(value, list) and 1 <= len(value) <= MAX_RANGES and all(map(_is_triple, value))
            wanted = f"1 to {MAX_RANGES} lists [boot_epoch, first, last]"
        else:
            sound = type(value) is int and self.minimum <= value <= self.maximum
            wanted = f"an integer from {self.minimum} to {self.maximum}"
        if not sound:
            raise Rejected("bad_arguments", f"{self.name} is {wanted}, got {str(value)[:80]!r}")


@dataclass(frozen=True, slots=True)
class CommandKind:
    """One line of the menu. Not ``offered``: only programs send it. Not ``remembered``: a repeat is carried out again
    and not answered, because its own content makes it harmless."""

    name: str
    text: str
    arguments: tuple[Argument, ...] = ()
    life_ms: int = 60 * MINUTE_MS
    offered: bool = True
    remembered: bool = True


MENU: Final[Mapping[str, CommandKind]] = {
    kind.name: kind
    for kind in (
        CommandKind("ping", "Answer with a heartbeat at once."),
        CommandKind("flush", "Pack and send what waits on the device, and ask for its acknowledgement."),
        CommandKind(
            "resync", "Send a snapshot of every signal, send again what is not acknowledged, tell what is not held.",
            (Argument("ranges", "only these sequence numbers: [boot_epoch, first, last]", triples=True),),
            life_ms=7 * 24 * 60 * MINUTE_MS,
        ),
        CommandKind(
            "sampling", "Change which readings are kept; stays until it is changed again, also over restarts.",
            (
                Argument("profile", "configured: the device's own rules", required=True, choices=PROFILES),
                Argument("min_interval_ms", "least time between two readings of a signal", maximum=3_600_000),
            ),
            life_ms=7 * 24 * 60 * MINUTE_MS,
        ),
        CommandKind(
            "notice", "Show the people at the machine what an alert says, where the device allows it.",
            (
                Argument("text", "what is shown", required=True, longest=MAX_TEXT),
                Argument("severity", "1 note, 2 warning, 3 alarm, 4 critical", required=True, minimum=1, maximum=4),
                Argument("alert", "name of the alert; a later notice of it takes the place of this one", longest=64),
            ),
            life_ms=24 * 60 * MINUTE_MS,
        ),
        CommandKind("edr_receipt", "The store holds a crash record.", offered=False, remembered=False),
    )
}  # fmt: skip


def check_arguments(kind: str, arguments: Mapping[str, Any]) -> CommandKind:
    """The kind that is asked for. Raises Rejected('unknown_kind') or Rejected('bad_arguments')."""
    found = MENU.get(kind)
    if found is None:
        raise Rejected("unknown_kind", f"{kind[:64]!r} is none of {', '.join(MENU)}")
    if not found.offered:
        return found
    known = {argument.name: argument for argument in found.arguments}
    if strange := sorted(set(arguments) - set(known)):
        raise Rejected("bad_arguments", f"{kind} has no argument {str(strange[0])[:64]!r}")
    for name, argument in known.items():
        if name in arguments:
            argument.check(arguments[name])
        elif argument.required:
            raise Rejected("bad_arguments", f"{kind} needs {name}")
    if kind == "sampling" and (arguments["profile"] == "interval") != ("min_interval_ms" in arguments):
        raise Rejected("bad_arguments", "min_interval_ms belongs to the profile interval, and to it alone")
    return found


def _is_triple(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 3 or not all(type(number) is int for number in value):
        return False
    epoch, first, last = value
    return bool(1 <= epoch < MAX_NUMBER and 1 <= first <= last < MAX_NUMBER)
