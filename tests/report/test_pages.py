# SPDX-License-Identifier: MIT
"""Parts of pages: recorded conditions, a block with its origin, tables and captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import nbclient
import nbformat
import pandas as pd
import pytest

from iolab.figures import block_figure
from iolab.pathology import get_pathology
from iolab.report.pages import (
    antagonists,
    block_view,
    explained,
    publish,
    recorded_cells,
    recorded_traces,
    trace_of,
    treatment_name,
)
from iolab.store.dataset import Dataset, load
from iolab.store.raw import RawStore, block_key
from iolab.store.tables import write_tables
from iolab_base.errors import UserError
from tests.support import synthetic
from tests.support.results import TARGET, block, result, write_results
from tests.support.story import story, switch


@pytest.fixture
def recorded(tmp_path: Path) -> Dataset:
    """One boot of two kernels, recorded at two depths: the control, and weights 100 and 1000."""
    data = synthetic.dataset(kernels=["6.1", "6.12"], weights=[100, 1000], boots=1, invalid=False)
    cells = data.cells[~data.cells["aa"]].assign(recorded=True)
    trace = story(tmp_path, [switch(1000, 0, (1, "fio"), 1, (2, "w"))]).path
    return replace(data, cells=cells, traces=dict.fromkeys(cells["cell"], trace))


def levels_of(cells: pd.DataFrame) -> list[tuple[str, int, object]]:
    weights = cells["weight"].astype(object).where(cells["weight"].notna(), None)
    return list(zip(cells["kernel"], cells["iodepth"], weights, strict=True))


def test_a_condition_has_its_control_first_and_each_level_once(recorded: Dataset) -> None:
    assert levels_of(recorded_cells(recorded)) == [
        *(("6.1", 64, None), ("6.1", 64, 100), ("6.1", 64, 1000))
    ]
    assert levels_of(recorded_cells(recorded, "6.12", {"iodepth": 192})) == [
        *(("6.12", 192, None), ("6.12", 192, 100), ("6.12", 192, 1000))
    ]
    assert list(recorded_traces(recorded)) == ["outside", "cpu.weight 100", "cpu.weight 1000"]


def test_the_condition_with_most_traces_is_taken(recorded: Dataset) -> None:
    cells = recorded.cells
    lost = (cells["kernel"] == "6.1") & (cells["iodepth"] == 64) & (cells["weight"] == 100)
    torn = replace(recorded, cells=cells.assign(valid=~lost.fillna(False)))
    assert levels_of(recorded_cells(torn)) == [
        *(("6.1", 192, None), ("6.1", 192, 100), ("6.1", 192, 1000))
    ]
    assert recorded_cells(replace(recorded, traces={})).empty


@pytest.mark.parametrize(
    ("kernel", "levels", "noun"),
    [
        ("6.21", None, "6.1, 6.12"),
        (None, {"iodepth": 7}, "64, 192"),
        (None, {"iodept": 64}, "iodepth"),
        (None, {"weight": 100}, "weight"),
    ],
)
def test_a_condition_without_a_trace_is_refused_with_those_that_have_one(
    recorded: Dataset, kernel: str | None, levels: dict[str, int] | None, noun: str
) -> None:
    with pytest.raises(UserError, match=noun):
        recorded_cells(recorded, kernel, levels)


def test_a_damaged_trace_is_a_users_error(recorded: Dataset) -> None:
    name, path = next(iter(recorded.traces.items()))
    assert trace_of(recorded, name).path == path
    path.write_bytes(b"no trace")
    with pytest.raises(UserError, match=path.name):
        trace_of(recorded, name)


def test_a_missing_level_of_the_treatment_is_the_control() -> None:
    dio = get_pathology("dio_kworker")
    assert [treatment_name(dio, level) for level in (float("nan"), None, 1000)] == [
        *("outside", "outside", "cpu.weight 1000")
    ]


def test_a_users_error_is_shown_and_another_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: Exception) -> None:
        raise error

    with explained():
        fail(UserError("no such level"))
    assert "no such level" in capsys.readouterr().out
    with pytest.raises(KeyError), explained():
        fail(KeyError("iops"))


def test_a_published_figure_comes_with_its_caption(tmp_path: Path) -> None:
    data = synthetic.dataset(kernels=["6.1"], boots=1, invalid=False)
    figure = block_figure(data.cells[data.cells["block"] == data.cells["block"].iloc[0]])
    text = publish("block_figure", figure, data, tmp_path)
    assert (tmp_path / "block_figure.txt").read_text().strip() == text
    assert (tmp_path / "block_figure.png").read_bytes().startswith(b"\x89PNG")
    assert publish("own", figure, data, says="Own words.").startswith("Own words.")
    with pytest.raises(UserError, match="own"):
        publish("own", figure, data)


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Dataset]:
    """A store with a block in whose second cell an antagonist ran, and its tables."""
    made, store = block(), RawStore(tmp_path / "store")
    second = result("c001")
    second["last"]["tasks"]["99"] = {
        **second["last"]["tasks"]["10"],
        "comm": "dd\x1b[2J",
        "job": False,
        "antagonist": True,
    }
    facts = {"kernel_release": "6.1.0-made-up", "scheduler": "CFS", "fio_version": "fio-3.33"}
    results = write_results(tmp_path / "results", made.plan, facts=facts, c001=second)
    key = block_key(made, TARGET)
    store.put(key, block=made, target=TARGET, results=results, run={"iolab": "0.0.9"})
    write_tables(store, [key], {}, tmp_path / "tables")
    return store.root, load(tmp_path / "tables")


def test_a_block_has_the_facts_and_the_console_of_its_store(stored: tuple[Path, Dataset]) -> None:
    root, data = stored
    name = data.cells["block"].iloc[0]
    shuffled = data.cells.sort_values("position", ascending=False)
    view = block_view(shuffled, name, root)
    assert view.table["position"].tolist() == [0, 1, 2, 3]
    origin = dict(zip(view.origin["what"], view.origin["value"], strict=True))
    assert (origin["kernel"], origin["block"], origin["fio_version"]) == ("6.1", name, "fio-3.33")
    assert view.console == ["[    0.1] a line", "iolab: cell 4/4 c003 done"]
    assert view.run["iolab"] == "0.0.9"
    alone = block_view(shuffled, None, None)
    assert (alone.facts, alone.run, alone.console) == ({}, {}, [])
    assert "fio_version" not in set(alone.origin["what"])
    with pytest.raises(UserError, match=name):
        block_view(data.cells, "no such block", root)


def test_only_an_antagonist_is_named_as_one(stored: tuple[Path, Dataset]) -> None:
    root, data = stored
    name = data.cells["block"].iloc[0]
    assert antagonists(root, f"{name}-c001") == {99: "dd?[2J (antagonist)"}
    assert antagonists(root, f"{name}-c000") == {}
    assert antagonists(root, "another-c001") == {}
    assert antagonists(None, f"{name}-c001") == {}


def test_a_notebook_shows_each_frame_as_such_a_table(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[
            nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]
            for source in (
                "from iolab import report\nfrom iolab.paths import REFERENCE\n"
                "from iolab.store.dataset import load\nimport pandas as pd\n"
                "cells = load(REFERENCE / 'dio_kworker').cells\nreport.style_tables(cells)",
                "pd.DataFrame({'weight': [None, 1000.0], 'text': ['<b>', 'x']})",
                "pd.Series({'kernel': '6.1'}, name='known').to_frame()",
                "pd.DataFrame({'place': [7], 'x': [1]}).set_index('place')",
            )
        ]
    )
    ran = nbclient.NotebookClient(notebook, kernel_name="python3").execute()
    first, second, third = (cell.outputs[0].data["text/html"] for cell in ran.cells[1:])
    assert "outside" in first
    assert "&lt;b&gt;" in first
    assert ">kernel</td>" in second
    assert ">place</th>" in third
