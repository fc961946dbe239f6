"""``python -m infra`` is the ``fleetstream`` command."""

from __future__ import annotations

from infra.cli.main import main

if __name__ == "__main__":
    main()
