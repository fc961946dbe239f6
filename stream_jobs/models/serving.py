"""Which models the stream judges with: the registry's schedule, and of it what the folder of models can give.

The stream asks before every batch is stored whether anything was promoted or taken back. If so the batch is not stored,
the query starts again with the new schedule and judges it anew, from the same state. A change made now holds for event
times that lie ahead of every reading (``anomaly.models.schedule``), so what was stored before stays right.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from anomaly.deployment import Deployment
from anomaly.errors import BadModel, BadParameters
from anomaly.models.file import Model
from anomaly.models.schedule import deployments, era, generations
from stream_jobs.models.shelf import Shelf
from stream_jobs.sinks.models import ModelStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """``number``: of the newest change. ``era``: of the last change for which detection begins anew. ``broken``: models
    of the schedule whose file cannot be used; what they would have judged is not judged by them."""

    number: int
    era: int
    deployments: tuple[Deployment, ...]
    broken: tuple[str, ...]

    @property
    def models(self) -> int:
        """How many models judge, retired ones of earlier event times among them."""
        return len({one.model for one in self.deployments})


def serve(store: ModelStore, shelf: Shelf) -> Serving:
    """What holds now. Raises StoreBusy; a file that cannot be used is said and left out."""
    changes = store.changes()
    schedule = generations(changes)
    models: dict[str, Model] = {}
    broken: list[str] = []
    for name in sorted({one.model for one in schedule}):
        try:
            model = shelf.get(name)
            model.deployment(name), model.watcher(name)
        except (BadModel, BadParameters) as error:
            broken.append(name)
            log.error(
                'event=model_unusable model=%s reason="%s" note="the rest goes on; mend the file, start again"',
                name[:16], error,
            )  # fmt: skip
        else:
            models[name] = model
    number = max((one.change_id for one in changes), default=0)
    return Serving(number, era(changes), deployments(schedule, models), tuple(broken))
