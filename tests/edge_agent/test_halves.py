"""Cut between two files of the device: the next start goes on, no number is used twice, nothing held is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.packet import Lane, decode_header
from edge_agent import spool_open
from tests.edge_agent.doubles import NOW_MS, draft, spool_at


@pytest.mark.parametrize("starts_before", [0, 2])
def test_cut_between_the_identity_file_and_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts_before: int
) -> None:
    """The new epoch stands in the identity file and not in the spool: its number stays unused for ever."""
    for _ in range(starts_before):
        spool = spool_at(tmp_path)
        spool.accept([draft()], Lane.LIVE, NOW_MS)
        spool.close()

    def cut(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(spool_open, "_prune_epochs", cut)
        with pytest.raises(KeyboardInterrupt):
            spool_at(tmp_path)
    spool = spool_at(tmp_path)
    assert spool.epoch.boot_epoch == starts_before + 2
    spool.accept([draft()], Lane.LIVE, NOW_MS)
    held = [decode_header(one.frame) for one in spool.all_packets()]
    assert [header.boot_epoch for header in held] == [*range(1, starts_before + 1), starts_before + 2]
    assert len({header.nonce for header in held}) == len(held)
    spool.close()
