# SPDX-License-Identifier: MIT
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from iolab.paths import REFERENCE
from iolab_base.errors import UserError
from paper.make.artifacts import collect_results, draw
from paper.make.results import read_results
from tests.support import synthetic
from tests.support.reports import COMMAND, report


def _measured(folder: Path) -> Path:
    """Store made-up data of one report as the reference data are."""
    synthetic.write(report("fsnotify_contention"), folder / "fsnotify_contention")
    (folder / "command.txt").write_text(f"{COMMAND}\n")
    return folder


def test_claims_and_their_figure_are_collected_the_same_each_time(tmp_path: Path) -> None:
    data = _measured(tmp_path / "data")
    made = []
    for place in ("a", "b"):
        path = collect_results(data, tmp_path / place)
        files = sorted((tmp_path / place / "figures").iterdir())
        made.append([f.read_bytes() for f in (path, *files)])
        names = [f.name for f in files]
        drawn, ends = ("brackets", "costs", "near", "verdicts"), ("pdf", "png", "svg", "txt")
        assert names == [f"{name}.{end}" for name in drawn for end in ends]
    assert made[0] == made[1]
    assert read_results(tmp_path / "a" / "results.json")["pathologies"][0]["command"] == COMMAND
    caption = (tmp_path / "a" / "figures" / "verdicts.txt").read_text()
    assert caption.endswith(f"nox -s figures -- {data}; data measured by: {COMMAND}.\n")
    near = (tmp_path / "a" / "figures" / "near.txt").read_text()
    assert "A row says what differs from it. Intervals over 3 boots cover 87 %." in near


def test_figures_of_causes_do_not_stay_open(tmp_path: Path) -> None:
    data = _measured(tmp_path / "data")
    shutil.copytree(REFERENCE / "why" / "bfq_idling-7.2", data / "why" / "bfq_idling-7.2")
    before = plt.get_fignums()
    collect_results(data, tmp_path / "paper")
    assert (tmp_path / "paper/figures/why/bfq_idling-7.2/attribution.svg").exists()
    assert plt.get_fignums() == before


@pytest.mark.nightly
def test_a_caption_ends_with_the_commands_and_old_figures_are_gone(tmp_path: Path) -> None:
    data = _measured(tmp_path / "data")
    old = tmp_path / "paper" / "figures" / "fsnotify_contention" / "old.svg"
    old.parent.mkdir(parents=True)
    old.write_text("of other data")
    (folder,) = draw(data, tmp_path / "paper")
    captions = sorted(folder.glob("*.txt"))
    assert captions
    assert not old.exists()
    for path in captions:
        ending = f"Remade by: nox -s figures -- {data}; data measured by: {COMMAND}.\n"
        assert path.read_text().endswith(ending)
        assert path.with_suffix(".svg").exists()


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder of results"):
        collect_results(tmp_path, tmp_path / "paper")
