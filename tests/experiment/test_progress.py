# SPDX-License-Identifier: MIT
"""The bar of cells."""

from __future__ import annotations

import logging
import time

import pytest

from iolab.experiment import progress
from iolab.sweeps.pool import Progress


def test_what_was_fetched_is_not_said_of_the_cells_after_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_DELAY_S", 0)
    with progress.progress_bar(shown=True) as update:
        logging.getLogger("icountvm").info("unpacking a kernel")
        assert "unpacking a kernel" in capsys.readouterr().err
        # tqdm draws ten times a second at most.
        time.sleep(0.2)
        update(Progress(jobs=1, cells=4, cells_done=1))
        said = capsys.readouterr().err
    assert "1/4" in said
    assert "unpacking" not in said
