"""What can stop these jobs, by what the caller can do about it."""

from __future__ import annotations

from contracts.errors import Fatal, TryLater


class LogLost(Fatal):
    """Kafka no longer holds records that the store has not taken; going on would hide the gap."""


class PlanBroken(Fatal):
    """A task was handed records of more than one Kafka partition: the ledger of offsets would lie."""


class StoreBusy(TryLater):
    """The store refused a transaction (deadlock, restart) for longer than we repeat it; nothing was lost."""


class StoreRefuses(Fatal):
    """The store refuses whatever it is given, so the fault is the store's; nothing was stored or set aside."""


class QueryFailed(Fatal):
    """The ingest query ended by itself; what it had not committed is still in the log."""


class ModelsChanged(TryLater):
    """A batch was judged by models that no longer hold; nothing of it was stored, the query starts again."""
