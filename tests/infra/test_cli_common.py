"""Tables on the command line show values as they are."""

from __future__ import annotations

import pytest

from infra.cli.common import print_table


def test_brackets_in_values_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["asset", "value"], [["Truck [red] 7 [/]", None], ["[bold]", 1.5]])
    shown = capsys.readouterr().out
    assert "Truck [red] 7 [/]" in shown and "[bold]" in shown and "1.5" in shown and "None" not in shown
