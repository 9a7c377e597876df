# SPDX-License-Identifier: MIT
"""Figures as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab import figures
from iolab.store.dataset import Dataset
from iolab_base.errors import IolabError, UserError


def test_a_figure_saved_twice_is_the_same_file(small: Dataset, tmp_path: Path) -> None:
    figure = figures.by_treatment(small.cells, "iops", "IOPS", contrast="ratio")
    first = [p.read_bytes() for p in figures.save_figure(figure, tmp_path, "f", caption="")]
    assert [p.read_bytes() for p in figures.save_figure(figure, tmp_path, "f", caption="")] == first


def test_bad_names_and_folders_are_said(small: Dataset, tmp_path: Path) -> None:
    figure = figures.by_treatment(small.cells, "iops", "IOPS", contrast="ratio")
    with pytest.raises(UserError, match="plain file name"):
        figures.save_figure(figure, tmp_path, "../f", caption="")
    (tmp_path / "file").touch()
    with pytest.raises(IolabError, match="cannot write"):
        figures.save_figure(figure, tmp_path / "file", "f", caption="")
    with pytest.raises(UserError, match="no figure called"):
        figures.caption("pie", small.cells)
