# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbformat import NotebookNode

from iolab.pathology import PATHOLOGIES, register_file
from iolab.paths import REFERENCE
from iolab.store.counters import MECHANISM_COLUMNS
from iolab.store.dataset import Dataset, load
from iolab.sweeps.pages import handed_over
from tests.support import synthetic
from tests.support.reports import report

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic.dataset(boots=2)


@pytest.fixture(scope="module")
def folder(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(data, tmp_path_factory.mktemp("data"))


def execute(name: str, work: Path, **parameters: Any) -> NotebookNode:
    page: NotebookNode = papermill.execute_notebook(
        NOTEBOOKS / f"{name}.ipynb",
        work / f"{name}.ipynb",
        parameters=parameters,
        kernel_name="python3",
        progress_bar=False,
        cwd=str(work),
    )
    return page


def shown(page: NotebookNode) -> str:
    outputs = [output for cell in page.cells for output in cell.get("outputs", [])]
    errors = [output for output in outputs if output.get("name") == "stderr"]
    # The progress bar is all that may stand there: no warning, no log.
    assert all("measuring" in text or not text.strip() for text in (e["text"] for e in errors))
    return json.dumps(outputs)


def images(page: NotebookNode) -> int:
    outputs = [output for cell in page.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_all_pages_are_here() -> None:
    pages = {Path(pathology.notebook).stem for pathology in PATHOLOGIES.values()}
    assert sorted({"00_start_here", "atlas", "experiment", "why"} | pages) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_stored_clean_and_say_what_each_cell_does(name: str) -> None:
    text = (NOTEBOOKS / f"{name}.ipynb").read_text()
    page = nbformat.from_dict(json.loads(text))  # type: ignore[no-untyped-call]
    nbformat.validate(page)
    assert page.metadata.kernelspec.name == "python3"
    assert len({cell.id for cell in page.cells}) == len(page.cells)
    tagged = [cell for cell in page.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    for before, cell in zip(page.cells, page.cells[1:], strict=False):
        if cell.cell_type == "code":
            assert before.cell_type == "markdown"
            assert not cell.outputs
            assert cell.execution_count is None


def test_the_first_page_gives_the_answer(folder: Path, tmp_path: Path) -> None:
    links = {"dio_kworker": "dio_kworker/smoke/dio_kworker.html"}
    page = execute("00_start_here", tmp_path, folders=[str(folder)], links=links)
    text = shown(page)
    assert "cannot run here" in text
    assert "its archive cannot be reached" in text
    assert links["dio_kworker"] in text
    assert images(page) == 1


@pytest.mark.parametrize("name", ["00_start_here", "experiment"])
def test_a_question_without_a_claim_has_pages(name: str, folder: Path, tmp_path: Path) -> None:
    own = "import dataclasses, iolab\nfrom iolab.pathology import get_pathology\n"
    own += "old = get_pathology('dio_kworker')\n"
    own += "asked = dataclasses.replace(old, name='asked', claims=(), preregistered=())\n"
    (tmp_path / "asked.py").write_text(own)
    register_file(tmp_path / "asked.py")
    asked = load(folder)
    asked.cells["pathology"] = "asked"
    made = str(synthetic.write(asked, tmp_path / "made"))
    given = {"folders": [made]} if name == "00_start_here" else {"data": made}
    with handed_over(tmp_path):
        text = shown(execute(name, tmp_path, **given))
    assert "no claim" in text
    assert "Traceback" not in text


def test_the_atlas_has_a_row_for_each_report(folder: Path, tmp_path: Path) -> None:
    links = {"dio_kworker": {"page": "dio_kworker.html", "mail": "dio_kworker/mail.txt"}}
    page = execute("atlas", tmp_path, folders=[str(folder)], links=links)
    text = shown(page)
    assert links["dio_kworker"]["mail"] in text
    assert images(page) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", PATHOLOGIES)
def test_pages_run_from_the_reference_data(name: str, tmp_path: Path) -> None:
    page = Path(PATHOLOGIES[name].notebook).stem
    made = execute(page, tmp_path, results_file=str(tmp_path / "results.json"))
    text = shown(made)
    assert images(made) >= 2
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["pathology"] == name
    claims = {claim.name for claim in PATHOLOGIES[name].claims}
    assert {row["claim"] for row in results["verdicts"]} == claims
    assert "there is nothing to compare" in text
    assert results["comparison"] == []


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_pages_run_from_what_quick_measures(name: str, tmp_path: Path) -> None:
    folder = synthetic.write(report(name, profile="quick"), tmp_path / "made")
    page = Path(PATHOLOGIES[name].notebook).stem
    results = tmp_path / "results.json"
    made = execute(page, tmp_path, data=str(folder), results_file=str(results))
    shown(made)
    assert images(made) >= 1
    verdicts = json.loads(results.read_text())["verdicts"]
    judged = {row["claim"] for row in verdicts if row["n"]}
    assert {claim.name for claim in PATHOLOGIES[name].decided} <= judged


@pytest.mark.nightly
def test_a_page_of_a_hosts_clock_is_compared_with_virtual_time(tmp_path: Path) -> None:
    data = load(REFERENCE / "fsnotify_contention")
    kept = data.cells[data.cells["kernel"] == "6.12"].assign(clock="host", target="local")
    # This machine takes a reference for libaio too, where virtual time's 6.12 does not.
    calls = data.mechanism.merge(kept[["cell", "watch", "engine"]], on="cell")
    hit = (calls["measure"] == "dget_parent_per_io") & (calls["engine"] == "libaio")
    calls.loc[hit & (calls["watch"] == "directory"), "value"] += 1.0
    made = replace(data, cells=kept, mechanism=calls[list(MECHANISM_COLUMNS)])
    latency = data.latency[data.latency["cell"].isin(kept["cell"])]
    folder = synthetic.write(replace(made, latency=latency), tmp_path / "local")
    page = execute(
        "fsnotify_contention",
        tmp_path,
        data=str(folder),
        figures_folder=str(tmp_path / "figures"),
        results_file=str(tmp_path / "results.json"),
    )
    text = shown(page)
    assert "agrees: 1, does not agree: 1, cannot be compared: 1." in text
    assert "nothing to compare" not in text
    assert (tmp_path / "figures" / "comparison.png").exists()
    rows = json.loads((tmp_path / "results.json").read_text())["comparison"]
    assert [row["agreement"] for row in rows] == [
        "does not agree",
        "agrees",
        "cannot be compared",
    ]
    assert rows[0]["change"] == pytest.approx(1.0)


@pytest.mark.nightly
def test_the_pathologys_page_shows_and_writes_everything(folder: Path, tmp_path: Path) -> None:
    page = execute(
        "dio_kworker",
        tmp_path,
        data=str(folder),
        figures_folder=str(tmp_path / "figures"),
        results_file=str(tmp_path / "results.json"),
        family=[{"kernel": "6.1", "iodepth": 192, "weight": 10000}],
    )
    text = shown(page)
    assert "the ramp was not honoured" in text
    # The first one stands at the top, too.
    assert images(page) == 6 + 1
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"iops_ratio_by_weight.png", "latency_ecdf.svg", "region_iops.pdf"} <= names
    assert len(names) == 6 * 4
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["published"]["iops_ratio"] == 0.579
    assert sum(row["p_holm"] is not None for row in results["ratios"]["iops"]) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("beside", [False, True])
def test_the_map_comes_from_a_folder_beside_data_that_lack_it(beside: bool, tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=2, iodepths=[192]), tmp_path / "made")
    if beside:
        synthetic.write(synthetic.dataset(boots=2), tmp_path / "made-region")
    figures = tmp_path / "figures"
    results = tmp_path / "results.json"
    page = execute(
        "dio_kworker",
        tmp_path,
        data=str(folder),
        figures_folder=str(figures),
        results_file=str(results),
    )
    assert ("there is no map" in shown(page)) is not beside
    drawn = {path.stem for path in figures.glob("region_*.svg")}
    assert drawn == ({"region_iops", "region_switches"} if beside else set())
    rows = json.loads(results.read_text()).get("region_iops", [])
    assert {row["iodepth"] for row in rows} == ({64, 192} if beside else set())


def test_an_experiment_shows_one_block_whole(folder: Path, data: Dataset, tmp_path: Path) -> None:
    blocks = data.cells["block"].unique()
    page = execute("experiment", tmp_path, data=str(folder), block=blocks[1])
    *_, cell = [c for c in page.cells if "pair.block(block)" in c.source]
    text = json.dumps(cell.outputs)
    assert blocks[1] in text
    assert blocks[0] not in text
    assert sum("image/png" in output.get("data", {}) for output in cell.outputs) == 1
