"""What the device does for each command of the menu (``contracts.command_menu``): one function, one line in ``orders``.

A handler runs in the agent's thread, waits for nothing and says in its answer what came of it. It raises Rejected when
it will not.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from contracts.commands import Command
from contracts.errors import Rejected
from edge_agent import AGENT_VERSION
from edge_agent.commands import Done, Handler
from edge_agent.notices import show_notice
from edge_agent.sampling import with_profile
from edge_agent.spool import Spool
from edge_agent.spool_index import id_bounds
from edge_agent.spool_inquiry import inquire

if TYPE_CHECKING:
    from edge_agent.agent import Agent

SAMPLING = "sampling"
"""Under this name the command memory keeps the last profile."""


def orders(agent: Agent, on_receipt: Handler) -> dict[str, Handler]:
    """The menu as this device carries it out."""
    return {
        "ping": partial(ping, agent),
        "flush": partial(flush, agent),
        "resync": partial(resync, agent),
        SAMPLING: partial(sampling, agent),
        "notice": partial(notice, agent),
        "edr_receipt": on_receipt,
    }


def ping(agent: Agent, _command: Command) -> Done:
    spool = _spool(agent)
    agent.send_status()
    held = spool.index.total
    return Done({"agent": AGENT_VERSION, "boot_epoch": spool.epoch.boot_epoch, "held_packets": held.packets})


def flush(agent: Agent, _command: Command) -> Done:
    """Close the open packets; what is outstanding is due again, so that a gateway that forgot it answers."""
    agent.flush()
    return Done({"held_packets": _spool(agent).index.total.packets})


def resync(agent: Agent, command: Command) -> Done:
    """All: a snapshot, then everything outstanding again. Ranges: those, and what of them is not held, and why."""
    asked = command.arguments.get("ranges")
    if asked is None:
        agent.absence.snapshot_due = True
        agent.uplink.window.resend_all(agent.clock.mono_ms())
        return Done({"held_packets": _spool(agent).index.total.packets})
    found = inquire(_spool(agent), [(epoch, first, last) for epoch, first, last in asked])
    for epoch, numbers in found.held:
        agent.uplink.window.resend_all(agent.clock.mono_ms(), *id_bounds(epoch, numbers))
    not_held = [[epoch, *numbers, reason] for epoch, numbers, reason in found.not_held]
    return Done({"held": [[epoch, *numbers] for epoch, numbers in found.held], "not_held": not_held})


def sampling(agent: Agent, command: Command) -> Done:
    """Takes effect at once and is kept with the answer."""
    profile: dict[str, Any] = dict(command.arguments)
    use_sampling(agent, profile)
    return Done(profile, {SAMPLING: profile})


def notice(agent: Agent, command: Command) -> Done:
    """Put a notice where the machine's display reads it; a device without such a place refuses."""
    file = agent.settings.notices
    if file is None:
        raise Rejected("no_notices", "this device shows none; its setting `notices` names the file of its display")
    shown = show_notice(file, command, agent.clock.now_ms())
    return Done({"shown": shown})


def use_sampling(agent: Agent, profile: dict[str, Any]) -> None:
    """Let the sampler work by a profile of the menu."""
    rules = with_profile(agent.settings.sampling, str(profile["profile"]), int(profile.get("min_interval_ms", 0)))
    agent.sampler.use(rules)


def _spool(agent: Agent) -> Spool:
    if agent.spool is None:
        raise Rejected("no_spool", "the disk takes nothing just now; ask again later")
    return agent.spool
