"""``python -m gateway``: run one worker until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import signal
import sys

from contracts.errors import Fatal
from gateway.settings import load_settings
from gateway.wiring import build


def main() -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        gateway = build(load_settings())
    except Fatal as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: gateway.request_stop())
    gateway.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
