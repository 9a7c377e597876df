# SPDX-License-Identifier: MIT
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab.errors import IolabError, UserError
from iolab.pathology import PATHOLOGIES
from iolab.pathology.rules import rules_digest
from iolab.paths import REFERENCE
from iolab.report.artifacts import (
    CLAIMS,
    README,
    RULES,
    claims,
    collect_results,
    draw,
    rules,
    update_claims,
    update_readme,
    verdicts,
)
from iolab.report.results import read_results
from tests.support import synthetic
from tests.support.reports import COMMAND, report


def test_the_readme_and_the_page_of_verdicts_show_what_the_reference_data_say() -> None:
    text = README.read_text(encoding="utf-8")
    assert verdicts(REFERENCE) in text
    assert claims(REFERENCE) in CLAIMS.read_text(encoding="utf-8")


def test_the_page_of_rules_is_what_the_modules_say() -> None:
    text = RULES.read_text(encoding="utf-8")
    assert rules() in text
    for pathology in PATHOLOGIES.values():
        assert rules_digest(pathology) in text


@pytest.mark.parametrize("update", [update_readme, update_claims])
def test_a_page_without_marks_is_left_alone(
    update: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing to fill in\n")
    with pytest.raises(IolabError, match="has no marks"):
        update(REFERENCE, page)
    assert page.read_text() == "nothing to fill in\n"


def test_verdicts_are_a_row_per_pathology_and_a_column_per_kernel(tmp_path: Path) -> None:
    # Each treated value is 0.6 of its control: a ratio below its limit, a difference of -0.4.
    for name in ("dio_kworker", "fsnotify_contention"):
        synthetic.write(report(name), tmp_path / name)
    assert verdicts(tmp_path).splitlines() == [
        "| pathology | 6.1 | 6.8 | 6.12 |",
        "|---|---|---|---|",
        "| [dio_kworker](notebooks/dio_kworker.ipynb) | 1 of 3 / yes | - | 1 of 3 / yes |",
        "| [fsnotify_contention](notebooks/fsnotify_contention.ipynb) | no / - | - | no / - |",
    ]


def test_each_claim_has_its_estimate_and_each_reason_stands_once(tmp_path: Path) -> None:
    synthetic.write(report("fsnotify_contention"), tmp_path / "fsnotify_contention")
    text = claims(tmp_path)
    header, _, libaio, io_uring, magnitude = text.splitlines()[2:7]
    assert header == "| claim | kind | rule | 6.1 | 6.8 | 6.12 |"
    for row in (libaio, io_uring):
        told = re.findall(r"no: (-?[0-9.]+) \[.*?\], n = 3 \|", row)
        assert [float(estimate) for estimate in told] == pytest.approx([-0.4, -0.4], abs=0.05)
    assert magnitude.endswith("| - | - | - |")
    assert text.count("one cache line") == 1


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
        assert names == [f"verdicts.{end}" for end in ("pdf", "png", "svg", "txt")]
    assert made[0] == made[1]
    assert read_results(tmp_path / "a" / "results.json")["pathologies"][0]["command"] == COMMAND
    caption = (tmp_path / "a" / "figures" / "verdicts.txt").read_text()
    assert caption.endswith(f"nox -s figures -- {data}; data measured by: {COMMAND}.\n")


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
    with pytest.raises(UserError, match="neither is nor holds a folder of results"):
        collect_results(tmp_path, tmp_path / "paper")
