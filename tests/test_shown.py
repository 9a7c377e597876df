# SPDX-License-Identifier: MIT
"""Text with markup of every kind in it, looked at where it is shown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.style
import mistune
import pandas as pd
import pytest
from matplotlib.figure import Figure

from iolab import shown
from iolab.figures.save import caption, save_figure
from iolab.figures.style import STYLE, styled
from iolab.figures.verdicts import publish_comparison
from iolab.report.comparison import compare_clocks, comparison_text
from iolab.store.dataset import Dataset, load
from iolab.sweeps.pages import Page, make_page
from iolab_base import foreign
from tests.support import synthetic
from tests.support.browser import listener, opened
from tests.support.payloads import ADDRESS, MARK, PAYLOADS, TEXT, Attacked, controls
from tests.support.reports import report
from tests.test_notebooks import NOTEBOOKS


def attacked(text: str) -> Dataset:
    """Return data in which every text that a machine may have said is an attack."""
    data = report("fsnotify_contention")
    cells = data.cells.assign(
        kernel_release=text, scheduler=text, clock="host", target="local", gate=text
    )
    cells["valid"] = cells["position"] > 1
    absent = pd.DataFrame([{"kernel": "6.8", "reason": text}])
    return replace(data, cells=cells, unavailable=absent)


def written(data: Dataset, folder: Path) -> Path:
    return synthetic.write(data, folder)


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_terminal_is_told_words(kind: str) -> None:
    said = shown.terminal(PAYLOADS[kind])
    assert not controls(said)
    assert len(said) == len(PAYLOADS[kind])


@pytest.mark.parametrize("kind", PAYLOADS)
def test_markdown_shows_the_words(kind: str) -> None:
    said = shown.terminal(PAYLOADS[kind]).replace("\n", "?").replace("\t", "?")
    page = mistune.html(f"one {shown.markdown(PAYLOADS[kind])}")
    assert isinstance(page, str)
    read = Attacked(page)
    assert read.found == []
    assert re.findall(r"<\w+", page) == ["<p"]
    assert "".join(read.text).strip() == f"one {said}"


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_notebook_shows_the_words(kind: str) -> None:
    text = PAYLOADS[kind]
    said = shown.terminal(text)
    made = shown.Paragraph(text)._repr_mimebundle_()
    assert made["text/plain"] == said
    read = Attacked(made["text/html"])
    assert (read.found, "".join(read.text)) == ([], said)
    frame = pd.DataFrame([[said, 0.12345], [said, None]], columns=[said, "b"])
    page = shown.text_table(frame, precision=2, na_rep="none").to_html()
    read = Attacked(page)
    assert read.found == []
    assert "".join(read.text).count(said) == 3
    assert {"0.12", "none"} <= {text.strip() for text in read.text}
    assert "tex2jax_ignore" in page
    assert "tex2jax_ignore" in made["text/html"]


def test_a_spreadsheet_gets_no_formula() -> None:
    wide = "\N{FULLWIDTH EQUALS SIGN}1"
    texts = ["=1+1", "+1-1", "-x", "@SUM(A1)", "\t=1", "\r\n@x", " =1", wide]
    plain = ["", "x=1", "-1.5", "+2", "-inf", "'=1", None, 3, -4.5, True]
    table = pd.DataFrame({"gate": [*texts, *plain], "=name": -1.5, "kernel": "6.1"})
    table["kernel"] = table["kernel"].astype("category")
    made = shown.spreadsheet(table)
    assert list(made.columns) == ["gate", "'=name", "kernel"]
    assert made["gate"].tolist() == [*(f"'{text}" for text in texts), *plain]
    assert set(made["'=name"]) == {-1.5}
    assert set(made["kernel"]) == {"6.1"}
    assert table["gate"].tolist() == [*texts, *plain]


def test_figures_show_formulas_as_words(tmp_path: Path) -> None:
    @styled
    def draw(text: str) -> Figure:
        figure = Figure()
        axes = figure.add_subplot()
        axes.set(title=text, xlabel=text)
        axes.set_xticks([0], [text])
        return figure

    # This stops matplotlib where it reads formulas.
    bad = r"$\undefined{x}$"
    with (
        matplotlib.style.context(["default", {**STYLE, "text.parse_math": True}]),
        pytest.raises(ValueError, match="undefined"),
    ):
        Figure().text(0, 0, bad).figure.draw_without_rendering()  # type: ignore[union-attr]
    for kind, text in {**PAYLOADS, "bad": bad}.items():
        save_figure(draw(shown.terminal(text)), tmp_path, "figure", caption="")
        root = ElementTree.parse(tmp_path / "figure.svg").getroot()  # noqa: S314 - of ours
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not tags & {"script", "image", "foreignObject", "a"}, kind
        names = {name for element in root.iter() for name in element.attrib}
        assert not any(name.startswith("on") for name in names), kind


def test_what_others_measured_is_words_on_every_page(tmp_path: Path) -> None:
    with listener() as heard:
        text = TEXT.replace(ADDRESS, heard.address).replace("\ud800", "").replace("\udfff", "")
        folder = written(attacked(text), tmp_path / "data")
        data = load(folder)
        for column in ("kernel_release", "scheduler", "gate"):
            assert data.cells[column].iloc[0].isprintable()
        assert data.unavailable["reason"].iloc[0].isprintable()
        pages: dict[str, dict[str, Any]] = {
            "00_start_here": {"folders": [str(folder)]},
            "fsnotify_contention": {
                "data": str(folder),
                "figures_folder": str(tmp_path / "figures"),
                "results_file": str(tmp_path / "results.json"),
            },
            "experiment": {"data": str(folder)},
        }
        words = PAYLOADS["typst"].replace(ADDRESS, heard.address)
        for name, parameters in pages.items():
            output = tmp_path / f"{name}.ipynb"
            notebook = make_page(Page(name, NOTEBOOKS / f"{name}.ipynb", output, parameters))
            page = notebook.with_suffix(".html")
            html = page.read_text()
            read = Attacked(html)
            assert read.found == []
            assert "<script" not in html
            # The table of an experiment's invalid cells shows the beginning of each gate.
            assert (MARK if name == "experiment" else words) in " ".join(read.text), name
            assert not controls(html)
            assert not controls(notebook.read_text())
            # Not the browser's obedience alone: without its rule the page is as harmless.
            rule = re.search(r"<meta[^>]*Content-Security-Policy[^>]*>", html)
            assert rule is not None
            bare = tmp_path / "bare.html"
            bare.write_text(html.replace(rule[0], ""))
            for opening in (page, bare):
                opened(opening, tmp_path / "profile")
            assert heard.heard == []
        # The listener would have heard: of the same page with the words as markup. The browser
        # keeps the rule for all that is in the page; leaving it (refresh) is not of that kind.
        markup = text.replace(PAYLOADS["refresh"].replace(ADDRESS, heard.address), "")
        for opening, quiet in ((page, True), (bare, False)):
            loud = tmp_path / "loud.html"
            loud.write_text(opening.read_text().replace("<main>", f"<main>{markup}"))
            assert Attacked.of(loud).found
            opened(loud, tmp_path / "profile")
            asked = {path for path in heard.heard if MARK in path}
            assert bool(asked) is not quiet
        assert {f"/{MARK}-{kind}" for kind in ("script", "handler", "image")} <= asked


@pytest.mark.parametrize(
    "kind",
    [
        *("script", "C1"),
        *(
            pytest.param(kind, marks=pytest.mark.nightly)
            for kind in PAYLOADS
            if kind not in ("script", "C1")
        ),
    ],
)
def test_captions_and_tables_beside_virtual_time_are_words(tmp_path: Path, kind: str) -> None:
    text = PAYLOADS[kind].encode("utf-8", "replace").decode()
    here = load(written(attacked(text), tmp_path / "data"))
    (said,) = here.cells["scheduler"].unique()
    assert said.isprintable()
    assert len(said) <= foreign.SCHEDULER
    compared = compare_clocks(here, report("fsnotify_contention"))
    page = comparison_text(compared).to_html()
    assert Attacked(page).found == []
    assert said in "".join(Attacked(page).text)
    publish_comparison(compared, tmp_path / "figures")
    block = here.cells[here.cells["block"] == here.cells["block"].iloc[0]]
    assert f", {said})" in caption("block_figure", block)


def columns_of(frame: pd.DataFrame, **options: Any) -> dict[str, list[str]]:
    words = shown.text_table(frame, **options).in_words()
    return {name: words.iloc[:, i].tolist() for i, name in enumerate(frame.columns)}


def test_tables_show_numbers_for_readers() -> None:
    frame = pd.DataFrame(
        {
            "weight": [None, 1000.0, 9600.0],
            "iops": [66677.290837, 143.26, 0.5],
            "idle": [-0.000107, 0.00004, 0.2512],
            "ratio": [0.57871, 0.00002, -0.0001],
            "slope": [-2.72e-5, 0.000266, 0.0],
            "valid": [True, False, None],
            "n": pd.array([1, None, 12345], dtype="Int64"),
            "level": ["bfq", None, 3],
        }
    )
    assert columns_of(frame, control={"weight": "outside"}) == {
        "weight": ["outside", "1,000", "9,600"],
        "iops": ["66,677", "143.3", "0.500"],
        "idle": ["0.000", "0.000", "0.251"],
        "ratio": ["0.579", "<0.001", "0.000"],
        "slope": ["-2.72e-05", "0.000266", "0.000"],
        "valid": ["yes", "no", "—"],
        "n": ["1", "—", "12,345"],
        "level": ["bfq", "—", "3"],
    }
    assert columns_of(frame[["ratio"]], precision=4) == {"ratio": ["0.5787", "0.0000", "-0.0001"]}


def test_a_column_without_numbers_is_shown() -> None:
    frame = pd.DataFrame(
        {"a": [float("nan"), float("inf")], "b": pd.array([None, None], "Float64")}
    )
    assert columns_of(frame) == {"a": ["—", "inf"], "b": ["—", "—"]}
    assert "None" in shown.text_table(frame.iloc[:0]).to_html()


def test_a_table_names_units_and_has_whole_texts() -> None:
    reason = "the ramp was not honoured " * 40
    frame = pd.DataFrame({"latency_p99_ns": [1.5], "iops_per_s": [2.5], "s": [1], "gate": [reason]})
    page = shown.text_table(frame, caption="a < b").to_html()
    labels = re.findall(r'<th [^>]*>([^<]*)(?:<span class="iolab-unit">([^<]*)</span>)?</th>', page)
    assert labels == [("latency_p99 ", "ns"), ("iops ", "per s"), ("s", ""), ("gate", "")]
    assert reason in page
    assert f'<p class="{shown.CAPTION}' in page
    assert "a &lt; b" in page


def test_a_value_gives_its_mean_the_unit_and_the_precision() -> None:
    frame = pd.DataFrame({"mean": [-0.000107, 0.25], "n": [2, 3]})
    frame.attrs["value"] = "idle"
    assert columns_of(frame)["mean"] == ["0.000", "0.250"]
    frame.attrs["value"] = "worker_us_per_mib"
    assert 'mean <span class="iolab-unit">µs per MiB</span>' in shown.text_table(frame).to_html()
