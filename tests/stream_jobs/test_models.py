"""Models on real Spark, PostgreSQL and Kafka: trained from an archive, promoted, judging the stream, taken back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import psycopg
import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from anomaly.detectors.residual import Residual
from anomaly.models.schedule import LEAD_MS
from contracts.finding import decode_finding
from contracts.tables import ROLE_SINK
from stream_jobs.detection.query import said_of
from stream_jobs.detection.runs import Run
from stream_jobs.detection.service import DetectService, FindingSink
from stream_jobs.errors import ModelsChanged
from stream_jobs.metrics import DetectMetrics
from stream_jobs.models.registry import Registry
from stream_jobs.models.serving import serve
from stream_jobs.models.shelf import Shelf
from stream_jobs.settings import StreamSettings
from stream_jobs.sinks.connection import drop_all
from stream_jobs.sinks.findings import FindingStore
from stream_jobs.sinks.models import ModelRefused, ModelStore, Promotion
from tests.anomaly.fix_models import RECIPE, T0, trained
from tests.stream_jobs.fix_ingest import Line
from tests.stream_jobs.fix_models import DRIVE_S, HOT_S, HOURS_S, STREAM_S, Room, packets
from tests.stream_jobs.test_detection import Detection

FOUND = "SELECT device, model, detector, cause, opened_at FROM findings WHERE model <> ''"


def test_from_the_archive_to_a_finding_and_back(heart: Line) -> None:
    room = Room(heart)
    room.archive(HOURS_S)
    name, model, new = room.train()
    assert new and room.states() == {name: "candidate"} and room.registry.shelf.state(name) == "ok"
    assert room.train()[0::2] == (name, False), "the same archive and seed give the same bytes"
    training, score = model.training, model.score
    assert (training.devices, training.records, training.from_ms) == (3, 3 * HOURS_S // 60, T0)
    assert score.false_alarms == 0 and [(one.found, one.tried) for one in score.faults] == [(3, 3)]
    (row,) = room.registry.store.rows()
    assert (row["training_rows"], row["devices"], row["parent"]) == (training.rows, 3, None)

    compared = room.registry.compare(heart.spark, name[:10])
    assert compared.candidate_score == score and compared.live is None and not compared.worse
    event = room.registry.promote(compared, since_ms=T0 + 1_000 * STREAM_S)
    assert room.states() == {name: "live"} and room.events() == [event] and event.model == name
    with pytest.raises(ModelRefused, match="live already"):
        room.registry.promote(compared)

    # the stream: one car loses coolant, warmer than its load explains and far below every limit
    for car, device in enumerate(heart.devices.values(), 1):
        hot = HOT_S if device.name == "car1" else 10**9
        heart.send_from(device, packets(device, car, STREAM_S, DRIVE_S, hot))
    detection = Detection(heart, room.shard())
    detection.drain("models", per_batch=20)
    found = heart.rows(FOUND)
    assert [one[:4] for one in found] == [("car1", name, "residual", "coolant")]
    delay_s = found[0][4].timestamp() - T0 / 1_000 - HOT_S
    assert 0 < delay_s < 240
    said = [decode_finding(bytes(value)) for (value,) in heart.rows(
        "SELECT kafka_value FROM outbox WHERE topic = 'findings'")]  # fmt: skip
    assert name in {one.model for one in said} <= {name, ""}
    again = Detection(heart, room.shard())
    again.drain("models again")
    assert heart.rows(FOUND) == found

    _worse_is_refused_and_one_command_takes_back(room, name, model)


def _worse_is_refused_and_one_command_takes_back(room: Room, name: str, model: Any) -> None:
    assert isinstance(model.detector, Residual)
    deaf, _ = room.registry.register(replace(model, detector=replace(model.detector, threshold=1e6)))
    compared = room.registry.compare(room.line.spark, deaf)
    assert compared.live == name and any("is found in 0 of 3 against 3 of 3" in one for one in compared.worse)
    with pytest.raises(ModelRefused, match="it is worse"):
        room.registry.promote(compared)
    assert room.states() == {name: "live", deaf: "candidate"} and len(room.events()) == 1
    room.registry.promote(compared, anyway="to see how deaf it is")
    (audit,) = room.line.rows("SELECT anyway, anew, comparison -> 'worse' FROM model_changes WHERE model = %s", deaf)
    assert audit[:2] == ("to see how deaf it is", False) and audit[2]
    assert room.states() == {name: "retired", deaf: "live"}
    with pytest.raises(ModelRefused, match="promoted meanwhile"):
        room.registry.promote(replace(compared, candidate=name, live=None, worse=()))
    back = room.registry.rollback(RECIPE.name)
    assert (back.model, back.replaced) == (name, deaf) and room.states() == {name: "live", deaf: "retired"}
    assert room.registry.rollback(RECIPE.name).model is None and "live" not in room.states().values()
    with pytest.raises(ModelRefused, match="nothing to take back"):
        room.registry.rollback(RECIPE.name)
    assert [one.action for one in room.events()] == ["promoted", "promoted", "rolled_back", "rolled_back"]


@pytest.fixture
def registry(role_dsn: Callable[[str], str], tmp_path: Path) -> Iterator[Registry]:
    """Without Spark and Kafka."""
    yield Registry(StreamSettings(dsn=SecretStr(role_dsn(ROLE_SINK)), model_folder=tmp_path / "models"))
    drop_all()


def promote(registry: Registry, name: str) -> Any:
    return registry.store.promote(Promotion(name, registry.store.live(RECIPE.name), {"by": "hand"}, "test"))


def test_a_kill_between_file_and_row_leaves_a_file_that_can_be_adopted(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Stands for a SIGKILL: nothing of ours may catch it."""

    def die(*_: object) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ModelStore, "add", die)
        with pytest.raises(Killed):
            registry.register(trained())
    assert registry.store.rows() == [] and len(registry.shelf.names()) == 1
    (name,) = registry.adopt()
    assert [row["state"] for row in registry.store.rows()] == ["candidate"] and registry.adopt() == []
    assert registry.register(trained()) == (name, False)


def test_a_promotion_cut_at_its_commit_changed_and_told_nothing(
    registry: Registry, schema_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _ = registry.register(trained())
    with monkeypatch.context() as patch:
        patch.setattr("stream_jobs.sinks.models.TELL", "SELECT 1 / 0, %s, %s")
        with pytest.raises(psycopg.errors.DivisionByZero):
            promote(registry, name)
    count = "SELECT (SELECT count(*) FROM model_changes), (SELECT count(*) FROM outbox WHERE topic = 'events')"
    with psycopg.connect(schema_dsn) as connection:
        assert connection.execute(count.encode()).fetchone() == (0, 0)
        event = promote(registry, name)
        assert connection.execute(count.encode()).fetchone() == (1, 1)
        assert event.effective_ms == event.at_ms + LEAD_MS
        with pytest.raises(psycopg.errors.RestrictViolation):
            connection.execute("UPDATE model_changes SET anyway = 'so'")


@pytest.mark.parametrize("how", ["altered", "missing"])
def test_a_file_that_cannot_be_used_is_said_and_the_rest_judges(registry: Registry, how: str) -> None:
    good, _ = registry.register(trained())
    promote(registry, good)
    bad, _ = registry.register(trained(seed=2))
    promote(registry, bad)
    file = registry.shelf.folder / f"{bad}.json"
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(data.replace(b'"seed":2', b'"seed":3'))
    now = serve(registry.store, registry.shelf)
    assert now.broken == (bad,) and {one.model for one in now.deployments} == {good} and now.models == 1
    assert registry.shelf.state(bad) == how and registry.shelf.state(good) == "ok"
    metrics_registry = CollectorRegistry()
    DetectMetrics(metrics_registry).models(now.models, len(now.broken))
    assert metrics_registry.get_sample_value("fleetstream_detect_models", {"state": "unusable"}) == 1
    file.write_bytes(data)
    assert serve(registry.store, registry.shelf).broken == ()


def test_any_byte_changed_on_disk_is_noticed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    name, size = shelf.put(trained())
    assert shelf.get(name) == trained() and shelf.names() == [name]
    file = tmp_path / f"{name}.json"
    data = file.read_bytes()
    for at in np.random.default_rng(1).integers(0, size, 200).tolist():
        file.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        assert shelf.state(name) == "altered"
    file.write_bytes(data[:-1])
    assert shelf.state(name) == "altered" and shelf.state("0" * 64) == "missing"
    assert shelf.put(trained()) == (name, size) and shelf.state(name) == "ok"


class Query:
    """A query that ends as soon as its sink refuses a batch."""

    lastProgress = None

    def __init__(self, batch: Callable[[], None]) -> None:
        try:
            batch()
            self.isActive, self.error = True, None
        except ModelsChanged as error:
            self.isActive, self.error = False, error

    def exception(self) -> Exception | None:
        return self.error


def test_a_batch_judged_by_models_that_no_longer_hold_is_not_stored_and_judged_again(
    registry: Registry, tmp_path: Path
) -> None:
    metrics, run = DetectMetrics(CollectorRegistry()), Run(uuid4(), tmp_path, False)
    dsn = registry.settings.dsn.get_secret_value()
    store, stop = FindingStore(dsn, ()), threading.Event()
    store.begin(run.run_id, "set")
    sink = FindingSink(store, run, metrics)
    name, _ = registry.register(trained())
    stored: list[int] = []

    def start() -> Any:
        held = registry.store.number()
        sink.changed = lambda: registry.store.number() != held
        if not stored:
            promote(registry, name)  # between the start of the query and its first batch
        stored.append(held)
        if len(stored) == 2:
            stop.set()
        return Query(lambda: sink(said_of(0, [])))

    service = DetectService(lambda: pytest.fail("not asked"), metrics, lambda _: pytest.fail("not asked"), 1.0)
    service._watch(start(), sink, start, stop)
    assert len(stored) == 2 and stored[0] < stored[1] and sink.batches == 1
