"""``python -m stream_jobs ingest | archive | detect | train | watch | evidence``: settings, wire, run."""

from __future__ import annotations

import logging
import sys

from contracts.errors import FleetstreamError, TryLater
from stream_jobs.evidence.service import run_evidence
from stream_jobs.service import stop_on_signals
from stream_jobs.settings import StreamSettings
from stream_jobs.wiring import run_archive, run_detect, run_ingest, run_train, run_watch

JOBS = {
    "ingest": run_ingest, "archive": run_archive, "detect": run_detect, "train": run_train, "watch": run_watch,
    "evidence": run_evidence,
}  # fmt: skip
EXIT_FAILED, EXIT_USAGE, EXIT_TRY_LATER = 1, 2, 75


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in JOBS:
        sys.stderr.write(f"usage: python -m stream_jobs {{{'|'.join(JOBS)}}}\n")
        return EXIT_USAGE
    logging.basicConfig(
        level=logging.INFO, format="time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        settings = StreamSettings()  # type: ignore[call-arg]  # the rest comes from the environment
        JOBS[arguments[0]](settings, stop_on_signals())
    except FleetstreamError as error:
        logging.getLogger("stream_jobs").error('job=%s error=%s reason="%s"', arguments[0], type(error).__name__, error)
        return EXIT_TRY_LATER if isinstance(error, TryLater) else EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
