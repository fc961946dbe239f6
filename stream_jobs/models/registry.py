"""Folder and rows together: train, register, compare, promote, roll back. The work behind ``fleetstream models``."""

from __future__ import annotations

import getpass
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anomaly.errors import BadParameters
from anomaly.models.file import Model
from anomaly.models.recipe import RECIPES
from anomaly.models.trial import Score
from anomaly.models.verdict import worse
from contracts.model_event import ModelEvent
from contracts.topics import Topics
from stream_jobs.models.reading import Archive
from stream_jobs.models.shelf import FINE, Shelf
from stream_jobs.models.workshop import Asked, Ground, NothingToTrain, Workshop, ground, overlap, told
from stream_jobs.scratch import fresh_folder
from stream_jobs.session import build_session
from stream_jobs.settings import StreamSettings
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.manifest import Manifest
from stream_jobs.sinks.models import ModelRefused, ModelStore, Promotion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compared:
    """A candidate and the model that is live (None: none) on the same held-back span; ``worse``: why it should not be
    promoted, empty when it may."""

    candidate: str
    live: str | None
    from_ms: int
    until_ms: int
    candidate_score: Score
    live_score: Score | None
    worse: Sequence[str]

    def told(self) -> Mapping[str, Any]:
        """For people and for the audit."""
        return {
            "candidate": self.candidate, "live": self.live, "from_ms": self.from_ms, "until_ms": self.until_ms,
            "candidate_score": told(self.candidate_score),
            "live_score": None if self.live_score is None else told(self.live_score), "worse": list(self.worse),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Registry:
    """``settings.dsn`` is the sink's. Methods that compute take Spark."""

    settings: StreamSettings

    @property
    def store(self) -> ModelStore:
        return ModelStore(self.settings.dsn.get_secret_value())

    @property
    def shelf(self) -> Shelf:
        return Shelf(self.settings.model_folder.absolute())

    def workshop(self, session: SparkSession) -> Workshop:
        return Workshop(session, self._survey)

    def ground(self, kind: str) -> Ground:
        """Devices of a kind of asset, and when they were not well."""
        return ground(self.store.devices(kind), self.store.sick())

    def train(self, session: SparkSession, asked: Asked) -> tuple[str, Model, bool]:
        """Name, model, and whether it is new. Raises NothingToTrain, BadParameters."""
        model = self.workshop(session).train(asked, self.ground(asked.recipe.kind))
        name, new = self.register(model)
        return name, model, new

    def register(self, model: Model) -> tuple[str, bool]:
        """The file first, under its hash; then the row, which is the truth. Again, it changes nothing."""
        name, size_bytes = self.shelf.put(model)
        return name, self.store.add(name, model, size_bytes, who())

    def adopt(self) -> list[str]:
        """Make candidates of files that no row names: a crash came between, or the store was lost."""
        known = {row["model"] for row in self.store.rows()}
        strays = [name for name in self.shelf.names() if name not in known and self.shelf.state(name) == FINE]
        return [name for name in strays if self.register(self.shelf.get(name))[1]]

    def compare(
        self, session: SparkSession, candidate: str, since_ms: int | None = None, until_ms: int | None = None
    ) -> Compared:
        """A live model whose file cannot be used judges nothing: the candidate is judged as a first one then.

        Raises ModelRefused, BadModel (the candidate's file), NothingToTrain.
        """
        row = self.store.one(candidate)
        mine = self.shelf.get(row["model"])
        live = self.store.live(row["name"])
        if live == row["model"]:
            live = None
        usable = live is not None and self.shelf.state(live) == FINE
        models = [mine, self.shelf.get(live)] if live is not None and usable else [mine]
        begin, end = overlap(models, since_ms, until_ms)
        scores = self.workshop(session).compare(models, self.ground(mine.kind), begin, end)
        other = scores[1] if usable else None
        return Compared(row["model"], live, begin, end, scores[0], other, worse(scores[0], other))

    def promote(self, compared: Compared, anyway: str | None = None, since_ms: int | None = None) -> ModelEvent:
        """Raises ModelRefused when the candidate is worse and no reason is given."""
        if compared.worse and not anyway:
            raise ModelRefused(f"it is worse: {'; '.join(compared.worse)}; nothing was changed (--anyway REASON does)")
        reason = anyway if compared.worse else None
        asked = Promotion(compared.candidate, compared.live, compared.told(), who(), reason, since_ms)
        return self.store.promote(asked)

    def rollback(self, name: str) -> ModelEvent:
        """What was live before is live again. Raises ModelRefused."""
        return self.store.rollback(name, who())

    def _survey(self, from_ms: int) -> Archive:
        manifest = Manifest(self.settings.dsn.get_secret_value())
        try:
            kept = manifest.files()
        finally:
            manifest.disconnect()
        names = Topics(self.settings.topic_prefix)
        lanes = {names.live.name: 0, names.backlog.name: 1}
        return Archive.of(self.settings.archive_folder.absolute(), kept, lanes, from_ms)


def who() -> str:
    """The person behind a command line."""
    return f"cli:{getpass.getuser()}"


@contextmanager
def open_spark(settings: StreamSettings) -> Iterator[SparkSession]:
    """Spark for as long as a training or comparison needs it, in a scratch folder of its own."""
    with fresh_folder(settings.checkpoint_folder / "training") as scratch:
        session = build_session(settings, scratch, "models")
        try:
            yield session
        finally:
            session.stop()
            drop_all()


def run_train(settings: StreamSettings, stop: threading.Event) -> None:
    """Train every recipe that the archive has something for; each becomes a candidate. Raises Fatal or TryLater."""
    registry = Registry(settings)
    with open_spark(settings) as session:
        for recipe in RECIPES.values():
            if stop.is_set():
                return
            try:
                name, model, new = registry.train(session, Asked(recipe, settings.train_seed, settings.detect_wait_ms))
            except (NothingToTrain, BadParameters) as error:
                log.info('event=nothing_to_train recipe=%s reason="%s"', recipe.name, error)
                continue
            log.info(
                "event=model_trained recipe=%s model=%s new=%s rows=%d", recipe.name, name, new, model.training.rows
            )
