# SPDX-License-Identifier: MIT
"""Every code sample of the documents works.

`tests.support.samples` says which samples run, which are parsed, and how a page marks them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from iolab.store.files import RAW
from iolab.store.upkeep import merge_store
from iolab_base.files import cache_dir
from tests.support.samples import samples

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if "_build" not in path.parts and samples(path)
]
BOOTING = [path for path in PAGES if any(sample.boots for sample in samples(path))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


def run_samples(page: Path, folder: Path, *options: str) -> None:
    """Run a page's samples in a folder that looks like a clone: it has the data and the atlas."""
    shutil.copytree(ROOT / "atlas", folder / "atlas")
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "reference").symlink_to(ROOT / "data" / "reference")
    argv = [sys.executable, "-W", "error", "-m", "tests.support.samples", str(page), *options]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "IOLAB_RUNS": str(folder / "data" / "runs"),
        "MPLBACKEND": "Agg",
        "COLUMNS": "100",
    }
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_samples_of_a_page_work(page: Path, tmp_path: Path) -> None:
    run_samples(page, tmp_path)


@pytest.mark.vm
@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("page", BOOTING, ids=name_of)
def test_the_samples_that_boot_a_machine_work(page: Path, tmp_path: Path) -> None:
    # What the same iolab measured of it on another night is taken from there, as a user's store is.
    kept, runs = cache_dir() / "samples" / page.stem, tmp_path / "data" / "runs"
    if (kept / RAW).is_dir():
        merge_store(kept, runs)
    run_samples(page, tmp_path, "--machine")
    merge_store(runs, kept)
