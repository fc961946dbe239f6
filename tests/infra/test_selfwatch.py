"""What the stack tells of itself: measured from real processes and real metric pages, bounded where it waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from contracts.signals import catalogue
from edge_agent.sources import Reading, Source
from infra import selfwatch
from infra.selfwatch import BACKLOG, CPU, MEMORY, OLDEST, RESTARTS, Pushed, costs, gauges, measure
from infra.state import ServiceState

READY = ServiceState("ready", os.getpid(), 2, 1.0, "")


def page() -> str:
    registry = CollectorRegistry()
    lag = Gauge("fleetstream_ingest_lag_records", "lag", ("topic",), registry=registry)
    lag.labels("live").set(3)
    lag.labels("backlog").set(4)
    Gauge("fleetstream_other", "other", registry=registry).set(9)
    return generate_latest(registry).decode()


def test_the_numbers_are_the_catalogue_s() -> None:
    names = {
        CPU: "CpuSeconds",
        MEMORY: "ResidentBytes",
        RESTARTS: "Restarts",
        BACKLOG: "Backlog",
        OLDEST: "OldestWaiting",
    }
    for number, name in names.items():
        assert catalogue().by_number(number).path == f"Process.{name}"


def test_gauges_are_added_up_over_their_labels_and_others_left_out() -> None:
    assert gauges(page(), {"fleetstream_ingest_lag_records": BACKLOG, "fleetstream_none": OLDEST}) == {BACKLOG: 7}
    with pytest.raises(ValueError):
        gauges("{ nonsense", {})


def test_a_process_costs_what_it_and_its_children_cost() -> None:
    child = "subprocess.run([sys.executable, '-c', 'sum(range(10**7))'])"
    code = f"import subprocess, sys; {child}; print('done', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = costs(process.pid)
        process.communicate(b"\n")
    assert found[CPU] > 0.05 and found[MEMORY] > 1_000_000
    assert costs(process.pid) == {}


def test_a_service_is_measured_from_its_process_and_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page().encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found = measure(
            "ingest", ServiceState("ready", os.getpid(), 2, 1.0, ""), {"ingest_metrics": server.server_port}
        )
        server.shutdown()
        thread.join()
        port = server.server_port
    assert found[RESTARTS] == 2 and found[BACKLOG] == 7 and found[MEMORY] > 0
    monkeypatch.setattr(selfwatch, "PROBE_TIMEOUT_S", 0.5)
    silent = measure("ingest", READY, {"ingest_metrics": port})
    assert BACKLOG not in silent and silent[RESTARTS] == 2, "what does not answer is not told, and nothing is made up"
    assert measure("postgres", ServiceState("backing_off", None, 5, None, ""), {}) == {RESTARTS: 5}


def test_what_no_agent_takes_is_bounded_and_the_oldest_goes() -> None:
    source = Pushed()
    assert isinstance(source, Source)
    source.waiting.extend(Reading(CPU, at_ms, 1.0) for at_ms in range(selfwatch.MOST_WAITING + 5))
    assert [one.at_ms for one in source.read(0, 2)] == [5, 6]
    assert len(source.read(0, 10_000)) == selfwatch.MOST_WAITING - 2 and not source.read(0, 10)
