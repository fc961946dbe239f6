"""The ``fleetstream`` command: one module per command, found through the menu in ``main``."""
