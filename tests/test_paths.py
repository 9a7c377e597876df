# SPDX-License-Identifier: MIT
"""Folders of a clone, and of results."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from iolab import paths
from iolab.paths import ATLAS, CHECKOUT, NOTEBOOKS, REFERENCE, TEMPLATES, runs_dir


def test_a_clones_folders_are_those_of_git() -> None:
    here = Path(__file__).parent
    argv = ["git", "-C", str(here), "rev-parse", "--show-toplevel"]
    top = Path(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip())
    assert top == CHECKOUT
    assert (top / "notebooks", top / "atlas") == (NOTEBOOKS, ATLAS)
    assert top / "data" / "reference" == REFERENCE
    assert (REFERENCE / "dio_kworker" / "cells.parquet").is_file()
    assert TEMPLATES.parent == top / "iolab"
    assert all(folder.is_dir() for folder in (NOTEBOOKS, ATLAS, TEMPLATES))


def test_results_go_where_the_environment_says_else_into_the_clone_or_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOLAB_RUNS", str(tmp_path / "mine"))
    assert runs_dir() == tmp_path / "mine"
    assert CHECKOUT is not None
    monkeypatch.setenv("IOLAB_RUNS", "")
    assert runs_dir() == CHECKOUT / "data" / "runs"
    monkeypatch.delenv("IOLAB_RUNS")
    assert runs_dir() == CHECKOUT / "data" / "runs"
    monkeypatch.setattr(paths, "CHECKOUT", None)
    monkeypatch.chdir(tmp_path)
    assert runs_dir() == tmp_path / "data" / "runs"
