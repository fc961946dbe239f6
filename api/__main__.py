"""``python -m api`` serves and relays; ``python -m api serve`` and ``python -m api relay`` do one of them."""

from __future__ import annotations

import logging
import sys

from api.wiring import run_relay, run_server
from contracts.errors import Fatal

USAGE = "usage: python -m api [serve|relay]   (without a word: both)\n"


def main(arguments: list[str]) -> int:
    """Exit code 0 after a clean stop, 1 when the configuration must be changed, 2 for a wrong word."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="time=%(asctime)s level=%(levelname)s room=api %(message)s"
    )
    logging.getLogger("aiokafka").setLevel(logging.WARNING)
    try:
        if arguments == ["relay"]:
            run_relay()
        elif arguments in ([], ["serve"]):
            run_server(with_relay=not arguments)
        else:
            sys.stderr.write(USAGE)
            return 2
    except Fatal as error:
        sys.stderr.write(f"api: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
