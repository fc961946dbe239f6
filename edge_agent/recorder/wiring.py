"""Puts a recorder together from its settings: the only place here that knows concrete classes."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from contracts.edr.capsule import Signer
from contracts.edr.profiles import load_profile
from contracts.signals import Catalogue
from edge_agent.errors import SettingsError
from edge_agent.recorder.blockfile import BlockFile, FlashFile
from edge_agent.recorder.capture import EventCapture
from edge_agent.recorder.errors import RecorderFileUnusable
from edge_agent.recorder.feed import CrashSource, ReadingTap
from edge_agent.recorder.keeping import Keeping
from edge_agent.recorder.post import CrashPost
from edge_agent.recorder.recorder import CrashRecorder
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.recorder.signing import load_signer
from edge_agent.recorder.store import RecordStore, file_size_bytes

log = logging.getLogger(__name__)
LINKAGE_SLOT_BYTES: Final = 1_024
SPARE_LINKAGES: Final = 3
"""More than records: an event that the full recorder refuses still has a linkage for its notice."""

OpenFile = Callable[[Path, int], BlockFile]


def open_file(settings: RecorderSettings) -> FlashFile:
    """The recorder's file on disk, created and pre-allocated when it is not there. Raises OSError."""
    capacity = load_profile(settings.profile).capacity_events
    return FlashFile(settings.path, file_size_bytes(capacity, settings.slot_bytes))


def build_recorder(
    settings: RecorderSettings, file: BlockFile, signer: Signer, boot_epoch: int, new_recorder_id: bytes
) -> CrashRecorder:
    """A running recorder over ``file``; counts one ignition cycle. ``new_recorder_id``: 16 random bytes."""
    capacity = load_profile(settings.profile).capacity_events
    store = RecordStore(file, capacity, settings.slot_bytes, new_recorder_id)
    return _recorder(settings, store, signer, boot_epoch)


def build_post(
    settings: RecorderSettings,
    signals: Catalogue,
    source: CrashSource | None,
    now_ms: int,
    signer: Signer | None = None,
    open_at: OpenFile = FlashFile,
) -> CrashPost:
    """The recorder as the agent runs it. Raises SettingsError when key, certificates or files cannot be used.

    A file that is damaged or was made for other settings is set aside (``.damaged-<now_ms>``), never overwritten.
    ``signer`` replaces the settings' key, ``open_at`` the disk, in tests and simulations.
    """
    profile = load_profile(settings.profile)
    signer = signer or _signer(settings)

    def store(path: Path, capacity: int, slot_bytes: int) -> RecordStore:
        return _opened(path, capacity, slot_bytes, now_ms, open_at)

    try:
        records = store(settings.path, profile.capacity_events, settings.slot_bytes)
        capacity = profile.capacity_events + SPARE_LINKAGES
        linkages = store(settings.path.with_suffix(".linkage"), capacity, LINKAGE_SLOT_BYTES)
        raws = store(settings.path.with_suffix(".raw"), settings.raw_events, settings.raw_slot_bytes)
        recorder = _recorder(settings, records, signer, 0)
    except OSError as error:
        raise SettingsError(f"recorder file {settings.path}: {error}; check recorder.path and its disk") from error
    restraints = frozenset(
        element.name for element in profile.elements if element.feed.startswith("restraint:")
    )  # fmt: skip
    return CrashPost(settings, Keeping(recorder, linkages, raws), restraints, source, ReadingTap(signals))


def _recorder(settings: RecorderSettings, store: RecordStore, signer: Signer, boot_epoch: int) -> CrashRecorder:
    profile = load_profile(settings.profile)
    cycle = store.count_ignition_cycle()
    return CrashRecorder(EventCapture(profile, settings, boot_epoch, cycle), profile, store, signer)


def _opened(path: Path, capacity: int, slot_bytes: int, now_ms: int, open_at: OpenFile) -> RecordStore:
    size_bytes, new_id = file_size_bytes(capacity, slot_bytes), secrets.token_bytes(16)
    try:
        return RecordStore(open_at(path, size_bytes), capacity, slot_bytes, new_id)
    except RecorderFileUnusable as error:
        aside = path.with_name(f"{path.name}.damaged-{now_ms}")
        path.replace(aside)
        log.error("event=recorder_file_set_aside file=%s reason=%r", aside.name, str(error))
        return RecordStore(open_at(path, size_bytes), capacity, slot_bytes, new_id)


def _signer(settings: RecorderSettings) -> Signer:
    if settings.key is None or settings.chain is None:
        raise SettingsError("recorder.key and recorder.chain must name an Ed25519 key and its certificates")
    try:
        return load_signer(settings.key.read_bytes(), settings.chain.read_bytes())
    except (OSError, ValueError) as error:
        raise SettingsError(f"recorder.key or recorder.chain cannot be used: {error}") from error
