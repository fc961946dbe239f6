"""Puts a recorder together from its settings: the only place here that knows concrete classes."""

from __future__ import annotations

from contracts.edr.capsule import Signer
from contracts.edr.profiles import load_profile
from edge_agent.recorder.blockfile import BlockFile, FlashFile
from edge_agent.recorder.capture import EventCapture
from edge_agent.recorder.recorder import CrashRecorder
from edge_agent.recorder.settings import RecorderSettings
from edge_agent.recorder.store import RecordStore, file_size_bytes


def open_file(settings: RecorderSettings) -> FlashFile:
    """The recorder's file on disk, created and pre-allocated when it is not there. Raises OSError."""
    capacity = load_profile(settings.profile).capacity_events
    return FlashFile(settings.path, file_size_bytes(capacity, settings.slot_bytes))


def build_recorder(
    settings: RecorderSettings, file: BlockFile, signer: Signer, boot_epoch: int, new_recorder_id: bytes
) -> CrashRecorder:
    """A running recorder over ``file``; counts one ignition cycle. ``new_recorder_id``: 16 random bytes."""
    profile = load_profile(settings.profile)
    store = RecordStore(file, profile.capacity_events, settings.slot_bytes, new_recorder_id)
    cycle = store.count_ignition_cycle()
    capture = EventCapture(profile, settings, boot_epoch, cycle)
    return CrashRecorder(capture, profile, store, signer)
