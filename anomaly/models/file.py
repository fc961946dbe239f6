"""A trained model as bytes: one canonical JSON object, whose SHA-256 is the model's name.

It holds all that can change an answer (parameters, signals, when a person is called) and where it comes from (span,
counts, seed, code, hash of the input), the distribution of its inputs and its score on what was held back. The same
input, seed and code give the same bytes. ``decode`` builds every part again and accepts only bytes that it would have
written itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np

from anomaly.accumulate import Accumulator
from anomaly.base import Detector, Readings
from anomaly.deployment import FOREVER, Deployment, Regime
from anomaly.detectors.input_drift import InputDrift
from anomaly.detectors.mahalanobis import Mahalanobis
from anomaly.detectors.residual import Residual
from anomaly.detectors.subspace import Subspace
from anomaly.errors import BadModel, BadParameters
from anomaly.models.recipe import Call, Injected
from anomaly.models.rows import Shape
from anomaly.models.trial import FaultScore, Score
from contracts.finding import Severity

FORMAT: Final = 1
MAX_BYTES: Final = 4 * 1024 * 1024
TRAINABLE: Final[Mapping[str, type[Detector]]] = {
    kind.name: kind for kind in (Residual, Subspace, Mahalanobis, InputDrift)
}
INPUTS_CALL: Final = Call(
    cause="model inputs",
    advice="This machine works where its model was not trained: train anew, compare, promote.",
    severity=Severity.NOTE,
    accumulator=Accumulator(call_at=600, ceiling=1_200),
    worse=4.0,
)


@dataclass(frozen=True, slots=True)
class Training:
    """Where a model comes from. Rows before ``split_ms`` trained it, those from then on were held back; event times.

    ``records`` are packets that were read, ``readings`` their readings of the model's signals. ``code`` names the code,
    ``input_sha256`` what was read (files of the archive, stretches left out, who was what).
    """

    from_ms: int
    split_ms: int
    until_ms: int
    devices: int
    records: int
    readings: int
    rows: int
    seed: int
    wait_ms: int
    code: str
    input_sha256: str


@dataclass(frozen=True, slots=True)
class Model:
    """``recipe`` is also the name of the deployment, ``kind`` the class of asset."""

    recipe: str
    kind: str
    signals: tuple[int, ...]
    detector: Detector
    call: Call
    inputs: InputDrift
    faults: tuple[Injected, ...]
    training: Training
    score: Score

    @property
    def shape(self) -> Shape:
        call = self.call
        return Shape(self.signals, self.detector.channels, call.awaits, call.hold_ms, call.regime)

    def deployment(self, sha256: str = "", since_ms: int = 0, until_ms: int = FOREVER) -> Deployment:
        """The detector; raises BadParameters when the parts do not fit together."""
        return self.call.deployment(
            self.recipe, self.kind, self.detector, self.signals, sha256, since_ms, until_ms
        )  # fmt: skip

    def watcher(self, sha256: str = "", since_ms: int = 0, until_ms: int = FOREVER) -> Deployment:
        """What looks at the distribution of its inputs, moment by moment of the same rows."""
        own = self.call
        call = Call(
            INPUTS_CALL.cause, INPUTS_CALL.advice, INPUTS_CALL.severity, INPUTS_CALL.accumulator, own.awaits,
            own.hold_ms, INPUTS_CALL.worse, own.regime,
        )  # fmt: skip
        name = f"{self.recipe}-inputs"
        return call.deployment(name, self.kind, self.inputs, self.signals, sha256, since_ms, until_ms)


def sha256_of(data: bytes) -> str:
    """A model's name: 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def encode(model: Model) -> bytes:
    """Canonical JSON. Raises BadModel for numbers that are not finite."""
    call = model.call
    told = {
        "format": FORMAT, "recipe": model.recipe, "kind": model.kind, "signals": model.signals,
        "detector": _detector_told(model.detector), "inputs": _detector_told(model.inputs),
        "call": {
            "cause": call.cause, "advice": call.advice, "severity": int(call.severity), "awaits": call.awaits,
            "accumulator": [call.accumulator.call_at, call.accumulator.close_at, call.accumulator.ceiling],
            "hold_ms": call.hold_ms, "worse": call.worse, "regime": [call.regime.column, call.regime.edges],
        },
        "faults": [asdict(one) for one in model.faults], "training": asdict(model.training),
        "score": asdict(model.score),
    }  # fmt: skip
    try:
        return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise BadModel(f"a number is not finite: {error}") from error


def decode(data: bytes) -> Model:
    """Raises BadModel for anything that ``encode`` would not have written."""
    if len(data) > MAX_BYTES:
        raise BadModel(f"{len(data)} bytes are no model of ours")
    try:
        model = _model(json.loads(data))
        _try_once(model)
        same = encode(model) == data
    except (
        BadParameters, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError,
    ) as error:  # fmt: skip
        raise BadModel(f"{type(error).__name__}: {error}") from error
    if not same:
        raise BadModel("its bytes are not what its content is written as")
    return model


def _model(told: Mapping[str, Any]) -> Model:
    if told["format"] != FORMAT:
        raise BadModel(f"format {told['format']}; this code reads {FORMAT}")
    call, inputs = told["call"], _detector(told["inputs"])
    if not isinstance(inputs, InputDrift):
        raise BadModel("its inputs are described by something else")
    score = dict(told["score"])
    faults = tuple(FaultScore(**one) for one in score.pop("faults"))
    return Model(
        str(told["recipe"]), str(told["kind"]), _tuples(told["signals"]), _detector(told["detector"]),
        Call(
            call["cause"], call["advice"], Severity(call["severity"]), Accumulator(*call["accumulator"]),
            _tuples(call["awaits"]), call["hold_ms"], call["worse"],
            Regime(call["regime"][0], _tuples(call["regime"][1])),
        ),
        inputs, tuple(Injected(**one) for one in told["faults"]), Training(**told["training"]),
        Score(**score, faults=faults),
    )  # fmt: skip


def _detector_told(detector: Detector) -> dict[str, Any]:
    names = [one.name for one in fields(detector)]  # type: ignore[arg-type]
    return {
        "name": detector.name, "layout": detector.layout, "fingerprint": detector.fingerprint(),
        "parameters": {name: getattr(detector, name) for name in names},
    }  # fmt: skip


def _detector(told: Mapping[str, Any]) -> Detector:
    if told["name"] not in TRAINABLE:
        raise BadModel(f"no trained detector is named {told['name']!r}")
    kind = TRAINABLE[told["name"]]
    detector = kind(**{name: _tuples(value) for name, value in told["parameters"].items()})
    if (kind.layout, detector.fingerprint()) != (told["layout"], told["fingerprint"]):
        raise BadModel(f"{kind.name} was trained by code that read its parameters differently: train anew")
    return detector


def _try_once(model: Model) -> None:
    """Parts that do not fit together show at the first row."""
    deployments = model.deployment(), model.watcher()
    for deployment in deployments:
        channels = deployment.detector.channels
        zeros = np.zeros(1, np.int64)
        verdict = deployment.detector.score(
            deployment.detector.start(1), Readings(zeros, zeros, np.zeros((1, channels)), zeros)
        )
        if verdict.score.shape != (1,) or any(not 0 <= one.column < channels for one in model.faults):
            raise BadModel("its parts do not fit together")
    if deployments[0].detector.channels != deployments[1].detector.channels:
        raise BadModel("its inputs are not those of its detector")


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(one) for one in value)
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise BadModel("a parameter is no finite number")
    return value
