"""``python -m edge_agent`` is ``fleetstream-agent``."""

from __future__ import annotations

from edge_agent.cli import main

if __name__ == "__main__":
    main()
