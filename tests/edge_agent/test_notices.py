"""Notices at the machine: shown where the device allows it, newest first, one per alert, the file always whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.command_menu import MAX_TEXT, check_arguments
from contracts.commands import Command, encode_command
from contracts.errors import Rejected
from edge_agent.notices import MOST, read_notices, show_notice
from tests.edge_agent.doubles import NOW_MS
from tests.edge_agent.rig import Rig


def notice(number: int, alert: str) -> Command:
    arguments = {"text": f"Car 1: cooling {number}", "severity": 3, "alert": alert}
    return Command(f"n-{number}", "car-1", "notice", number, NOW_MS + 3_600_000, arguments)


def test_the_newest_stands_first_and_an_alert_once(tmp_path: Path) -> None:
    file = tmp_path / "display.json"
    for number in range(MOST + 5):
        show_notice(file, notice(number, f"a{number}"), NOW_MS + number)
    assert show_notice(file, notice(99, "a20"), NOW_MS + 99) == MOST
    shown = read_notices(file)
    assert (shown[0]["text"], shown[0]["at_ms"]) == ("Car 1: cooling 99", NOW_MS + 99)
    assert [one["alert"] for one in shown].count("a20") == 1
    file.write_text("{torn", encoding="utf-8")
    assert show_notice(file, notice(1, "a1"), NOW_MS) == 1


def test_a_device_shows_it_where_it_allows_it_and_else_refuses(tmp_path: Path) -> None:
    cases: dict[str, dict[str, Any]] = {"with": {"notices": tmp_path / "display.json"}, "without": {}}
    for folder, settings in cases.items():
        (tmp_path / folder).mkdir()
        rig = Rig(tmp_path / folder, **settings)
        rig.agent.start()
        for _ in range(2):
            rig.cloud.down("cmd", encode_command(notice(1, "a1")))
        rig.run(500)
        said = [(one.outcome.value, one.reason) for one in rig.cloud.answers]
        assert said == [("done", "")] * 2 if settings else said == [("refused", "no_notices")] * 2
        rig.agent.stop(0)
    assert len(json.loads((tmp_path / "display.json").read_text(encoding="utf-8"))) == 1


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(Rejected) as refused:
        show_notice(tmp_path / "no" / "display.json", notice(1, "a1"), NOW_MS)
    assert refused.value.reason == "no_notices"


@pytest.mark.parametrize("text", ["", "x" * (MAX_TEXT + 1), "two\nlines", "bell\a", 7])
def test_only_a_printable_line_is_accepted(text: object) -> None:
    check_arguments("notice", {"text": "Öl ✔", "severity": 1})
    with pytest.raises(Rejected):
        check_arguments("notice", {"text": text, "severity": 1})
