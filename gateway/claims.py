"""Whose a boot epoch is until the store says so: the first run that this worker heard under it.

The store's word (topic ``epochs``) comes only after ingest has stored an epoch, so it stays away as long as Spark,
PostgreSQL or the relay do. Bounded: of the devices the one heard longest ago is forgotten first, of a device's epochs
the one claimed first; what is forgotten is judged as before, by ingest.
"""

from __future__ import annotations

from collections import OrderedDict

MAX_DEVICES = 100_000
"""About 50 MB when every one has a claim."""

MAX_EPOCHS = 32
"""Of one device; as many as the store tells."""


class Claims:
    """Nonces by device and boot epoch; of this worker alone, and gone when it ends."""

    def __init__(self, max_devices: int = MAX_DEVICES, max_epochs: int = MAX_EPOCHS) -> None:
        self._devices: OrderedDict[str, dict[int, int]] = OrderedDict()
        self._max_devices = max_devices
        self._max_epochs = max_epochs

    def __len__(self) -> int:
        return sum(map(len, self._devices.values()))

    def owner(self, device: str, boot_epoch: int) -> int | None:
        """The nonce of the run that was heard first; None when nobody was."""
        epochs = self._devices.get(device)
        return None if epochs is None else epochs.get(boot_epoch)

    def highest(self, device: str) -> int:
        """The highest claimed epoch, 0 without any."""
        return max(self._devices.get(device, ()), default=0)

    def claim(self, device: str, boot_epoch: int, nonce: int) -> None:
        """This run is heard; it owns the epoch unless another one does."""
        epochs = self._devices.get(device)
        if epochs is None:
            if len(self._devices) >= self._max_devices:
                self._devices.popitem(last=False)
            self._devices[device] = {boot_epoch: nonce}
            return
        self._devices.move_to_end(device)
        if boot_epoch in epochs:
            return
        if len(epochs) >= self._max_epochs:
            del epochs[next(iter(epochs))]
        epochs[boot_epoch] = nonce
