# SPDX-License-Identifier: MIT
"""``iolab lab``."""

from __future__ import annotations

from pathlib import Path

from iolab.cli.lab import copy_notebooks
from iolab.paths import NOTEBOOKS


def test_notebooks_are_copied_once_and_never_replaced(tmp_path: Path) -> None:
    names = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
    assert copy_notebooks(tmp_path) == names
    (tmp_path / names[0]).write_text("edited")
    (tmp_path / names[1]).unlink()
    assert copy_notebooks(tmp_path) == [names[1]]
    assert (tmp_path / names[0]).read_text() == "edited"
    assert (tmp_path / names[1]).read_bytes() == (NOTEBOOKS / names[1]).read_bytes()
