"""Break, then run the real service: ``python -m tests.torture.mutants puback_order gateway``."""

from __future__ import annotations

import importlib
import sys


def main(names: str, room: str, arguments: list[str]) -> int:
    for name in names.split(","):
        importlib.import_module(f"tests.torture.mutants.{name}").mutate()
    entry = importlib.import_module(f"{room}.__main__").main
    return int(entry(arguments) if arguments else entry())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
