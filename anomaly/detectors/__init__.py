"""The menu of detectors. A new one is a new file and one line here; ``tests/laws`` examines every entry."""

from __future__ import annotations

from anomaly.base import Detector
from anomaly.detectors.ewma_cusum import EwmaCusum
from anomaly.detectors.faults import Faults
from anomaly.detectors.input_drift import InputDrift
from anomaly.detectors.limits import Limits
from anomaly.detectors.mahalanobis import Mahalanobis
from anomaly.detectors.maintenance import Maintenance
from anomaly.detectors.own_past import OwnPast
from anomaly.detectors.peers import Peers
from anomaly.detectors.residual import Residual
from anomaly.detectors.sequence import Sequence
from anomaly.detectors.silence import Silence
from anomaly.detectors.subspace import Subspace
from anomaly.detectors.vibration_zones import VibrationZones

MENU: tuple[type[Detector], ...] = (
    Limits,
    Silence,
    Faults,
    VibrationZones,
    Maintenance,
    OwnPast,
    EwmaCusum,
    Residual,
    Subspace,
    Mahalanobis,
    InputDrift,
    Peers,
    Sequence,
)
