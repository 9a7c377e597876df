# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typst
from bs4 import BeautifulSoup
from matplotlib.figure import Figure

from iolab.figures.save import save_figure
from iolab.paths import REFERENCE
from iolab.report.attribution import load_attribution
from iolab.report.comparison import compare_clocks
from iolab.store.dataset import load
from iolab_base.errors import IolabError, UserError
from iolab_base.foreign import line
from paper.make.artifacts import PAPER
from paper.make.observed import observed, read_observed
from paper.make.results import bracket_rows, check, collect, trial_rows, write_results
from paper.make.write_up import build, check_sources, literals, macros
from tests.support.payloads import MARK, PAYLOADS, TEXT, Attacked
from tests.support.reports import COMMAND, every_report

SOURCES = (
    *("iolab.typ", "post.typ", "parts.typ", "published.toml", "references.yml"),
    *("not_results.toml", "page.css"),
)
CAPTION = f"Drawn for a test. Remade by: nox -s figures; data measured by: {COMMAND}."


def collected(**more: Any) -> dict[str, Any]:
    """Return results of all reports, with the controls and the neighbourhood of the real ones."""
    measured = [(data, COMMAND) for data in every_report().values()]
    near = [load(folder) for folder in sorted((REFERENCE / "near").iterdir())]
    counted = observed(read_observed(REFERENCE))
    return collect(
        measured,
        brackets=bracket_rows(REFERENCE),
        trials=trial_rows(REFERENCE),
        near=near,
        observed=counted,
        **more,
    )


_document = cache(collected)


def document() -> dict[str, Any]:
    return deepcopy(_document())


def folder(path: Path, results: dict[str, Any], *, drawn: bool = True) -> Path:
    """Return a copy of the paper's sources with results, and a plain figure for each it shows."""
    path.mkdir(parents=True)
    for name in SOURCES:
        shutil.copy(PAPER / name, path / name)
    write_results(path / "results.json", results)
    text = "".join((PAPER / name).read_text() for name in ("iolab.typ", "post.typ"))
    figures = re.findall(r'#shown\("(.*?)", "(.*?)"', text)
    figures += [("other-clock/", row["folder"]) for row in results["clocks"]]
    for place, name in figures if drawn else ():
        save_figure(Figure(figsize=(1, 1)), path / "figures" / place, name, caption=CAPTION)
    return path


def built(path: Path) -> dict[str, bytes]:
    return {made.name: made.read_bytes() for made in build(path)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("IOPS fall by 42 %.", [(1, "42")]),
        ("Half is left,\nor 0.579 of it", [(2, "0.579")]),
        ('#let x = "0.579"', [(1, "0.579")]),
        ("`0.579`", [(1, "0.579")]),
        ("// 42 of a comment\n#box(width: 3.5cm)[two]", []),
        ("an iodepth of\n128, then 1280 and 128.5", [(2, "1280"), (2, "128.5")]),
        ("ext4 and 128 %", [(1, "128")]),
        ('#rect(fill: rgb("#001122"))', []),
        ("On Linux 6.1 and\nLinux 5.10, until v5.3 (`52262ee567ad`), 42", [(2, "42")]),
        ('#says("0.72", claim("dio_kworker", "IOPS lost", "6.1")', [(1, "6.1")]),
    ],
)
def test_a_number_typed_by_hand_is_found(text: str, found: list[tuple[int, str]]) -> None:
    explained = {"ext4": "a file system", "iodepth of 128": "set-up"}
    assert literals(text, explained) == found


def test_the_paper_holds_no_number_that_is_not_explained() -> None:
    check_sources(PAPER)


@pytest.mark.nightly
def test_a_literal_result_stops_the_build(tmp_path: Path) -> None:
    made = folder(tmp_path / "paper", document(), drawn=False)
    text = (made / "iolab.typ").read_text()
    (made / "iolab.typ").write_text(f"{text}\nInside, 71.9 % of the IOPS are left.\n")
    line = text.count("\n") + 2
    with pytest.raises(UserError, match=rf"iolab\.typ, line {line}: the number 71\.9 is typed"):
        build(made)


def test_an_explanation_that_nothing_needs_is_refused(tmp_path: Path) -> None:
    made = folder(tmp_path / "paper", document(), drawn=False)
    with (made / "not_results.toml").open("a") as stream:
        stream.write('"0.579" = "published"\n')
    with pytest.raises(UserError, match=r"explains '0\.579', which is nowhere"):
        build(made)


def test_macros_say_what_the_results_say() -> None:
    results = document()
    lines = macros(results).splitlines()
    row = next(r for r in results["claims"] if (r["claim"], r["kernel"]) == ("IOPS lost", "6.12"))
    name = r"\dioKworkerIOPSLostSixOneTwo"
    assert rf"\newcommand{{{name}}}{{{row['estimate']:.3f}}}" in lines
    assert rf"\newcommand{{{name}Interval}}{{[{row['low']:.3f}, {row['high']:.3f}]}}" in lines
    assert rf"\newcommand{{{name}Verdict}}{{reproduced}}" in lines
    assert all(re.fullmatch(r"\\newcommand\{\\[A-Za-z]+\}\{[^{}]*\}", line) for line in lines[1:])
    assert len(lines) == 1 + 3 * len(results["claims"])


def test_macros_of_one_name_are_refused() -> None:
    results = document()
    results["claims"][1]["claim"] = "Two switches per I-O"
    results["claims"][0]["claim"] = "Two switches per I/O"
    with pytest.raises(IolabError, match=r"two claims have the macro \\dioKworker"):
        macros(results)


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    first = built(folder(tmp_path / "a", document()))
    assert set(first) == {"macros.tex", "iolab.pdf", "iolab.html", "post.html"}
    assert first == built(folder(tmp_path / "b", document()))


def test_a_changed_estimate_reaches_every_output(tmp_path: Path) -> None:
    results = document()
    before = built(folder(tmp_path / "a", results))
    for row in results["claims"]:
        if row["claim"].startswith("IOPS lost") and row["kernel"] == "6.1":
            row["estimate"] = 0.4321
    after = built(folder(tmp_path / "b", results))
    assert all(before[name] != after[name] for name in before)
    assert b"0.432" in after["iolab.html"]
    assert b"0.432" not in before["iolab.html"]


def test_the_page_names_the_commands_that_remake_it(tmp_path: Path) -> None:
    results = document()
    page = built(folder(tmp_path / "paper", results))["iolab.html"].decode()
    words = BeautifulSoup(page, "html.parser").get_text(" ", strip=True)
    for command in ("nox -s figures", "nox -s paper", COMMAND):
        assert command in words


def test_a_number_of_the_text_that_the_reference_data_contradict_stops_the_build(
    tmp_path: Path,
) -> None:
    results = document()
    (row,) = (r for r in results["brackets"] if r["own"]["kernel"] == "6.3")
    row["own"]["estimate"] = 0.4321
    # The text is about the reference data; of other data it says what they say.
    built(folder(tmp_path / "other", results))
    (row,) = (r for r in results["brackets"] if r["claim"].startswith("(a)"))
    row["own"]["estimate"] = 99.0
    results["reference"] = True
    with pytest.raises(UserError, match="99"):
        built(folder(tmp_path / "reference", results))


def _without_claim(results: dict[str, Any]) -> None:
    results["claims"] = [r for r in results["claims"] if r["claim"] != "IOPS lost"]


def _without_kernel(results: dict[str, Any]) -> None:
    wanted = ("IOPS lost", "6.1")
    results["claims"] = [r for r in results["claims"] if (r["claim"], r["kernel"]) != wanted]


def _without_report(results: dict[str, Any]) -> None:
    results["pathologies"] = [p for p in results["pathologies"] if p["name"] != "bfq_idling"]


def _without_command(results: dict[str, Any]) -> None:
    results["pathologies"][0]["command"] = None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_without_claim, 'results.json has no claim "IOPS lost" of dio_kworker'),
        (_without_kernel, 'results.json has no claim "IOPS lost" of dio_kworker on kernel 6.1'),
        (_without_report, "results.json has no pathology bfq_idling"),
        (_without_command, "results.json does not say which command measured dio_kworker"),
    ],
)
def test_what_the_results_lack_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    results = document()
    change(results)
    with pytest.raises(UserError) as found:
        built(folder(tmp_path / "paper", results))
    assert str(found.value) == f"the write-up cannot be made: {says}"
    assert not (tmp_path / "paper" / "iolab.pdf").exists()


def test_a_missing_figure_is_named(tmp_path: Path) -> None:
    made = folder(tmp_path / "paper", document())
    (made / "figures" / "dio_kworker" / "timeline.txt").unlink()
    with pytest.raises(UserError, match=r"figures/dio_kworker/timeline\.txt"):
        built(made)


def test_results_of_another_version_are_refused(tmp_path: Path) -> None:
    made = folder(tmp_path / "paper", document(), drawn=False)
    old = {**document(), "format": "iolab-results/0"}
    (made / "results.json").write_text(json.dumps(old))
    with pytest.raises(UserError, match="iolab-results/0"):
        build(made)


def _unpacked(pdf: bytes) -> bytes:
    """Return a PDF with its compressed streams behind it as they are."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    found = [pdf]
    for stream in streams:
        with suppress(zlib.error):
            found.append(zlib.decompress(stream))
    return b"\n".join(found)


def test_what_a_machine_said_is_no_typst(tmp_path: Path) -> None:
    text = line(TEXT)
    results = document()
    for pathology in results["pathologies"]:
        for kernel in pathology["kernels"]:
            kernel.update(release=text, scheduler=text)
        for kernel in pathology["unavailable"]:
            kernel["reason"] = text
        pathology["command"] = text
    for row in results["claims"]:
        row.update(release=text, scheduler=text, reason=text)
    path = folder(tmp_path / "paper", results)
    for caption in path.glob("figures/**/*.txt"):
        caption.write_text(f"Kernels: 6.1 ({text}). Remade by: {text}; data measured by: {text}.\n")
    made = built(path)
    page = Attacked(made["iolab.html"].decode())
    assert page.found == []
    assert PAYLOADS["typst"] in "".join(page.text)
    assert MARK not in made["macros.tex"].decode()
    # A link that is meant would be found there.
    (tmp_path / "link.typ").write_text(f'#link("http://127.0.0.1/{MARK}")[x]')
    assert MARK.encode() in _unpacked(typst.compile(str(tmp_path / "link.typ")))
    # What it cites has addresses, which Typst makes links.
    cited = (PAPER / "references.yml").read_text()
    links = re.findall(rb"/URI ?\((.*?)\)", _unpacked(made["iolab.pdf"]))
    assert len(links) > 5
    assert [link for link in links if link.decode() not in cited] == []


@pytest.mark.nightly
def test_another_clock_stands_beside_virtual_time(tmp_path: Path) -> None:
    data = every_report()["dio_kworker"]
    # The same cells as if another clock had measured them: all that was judged must agree.
    there = replace(data, cells=data.cells.assign(clock="host"))
    results = collected(clocks=[("dio_kworker", compare_clocks(there, data))])
    check(results)
    judged = [row for row in results["clocks"] if row["agreement"] != "cannot be compared"]
    assert {row["agreement"] for row in judged} == {"agrees"}
    assert all(row["here"] == row["virtual"] for row in results["clocks"])
    page = built(folder(tmp_path / "paper", results))["iolab.html"].decode()
    words = BeautifulSoup(page, "html.parser").get_text(" ", strip=True)
    primary = [row for row in results["clocks"] if not row["secondary"]]
    both = sum(row["here"]["estimate"] is not None for row in primary)
    agree = sum(row["agreement"] == "agrees" for row in primary)
    assert agree > 0
    assert f"Of {both} primary claims, {agree} agree" in words


@pytest.mark.nightly
def test_what_was_measured_again_is_counted(tmp_path: Path) -> None:
    data = every_report()["dio_kworker"]
    results = collected(again=[("dio_kworker", compare_clocks(data, data))])
    # One verdict is turned by hand.
    turned = next(row for row in results["again"] if row["agreement"] == "agrees")
    turned["agreement"], turned["here"]["verdict"] = "does not agree", "inconclusive"
    check(results)
    page = built(folder(tmp_path / "paper", results))["iolab.html"].decode()
    words = BeautifulSoup(page, "html.parser").get_text(" ", strip=True)
    rows = len(results["again"])
    assert f"Of {rows} verdicts, {rows - 1} are the same" in words
    assert f"{turned['claim']}” of dio_kworker on {turned['kernel']} differs" in words


@pytest.mark.nightly
def test_causes_stand_in_a_table(tmp_path: Path) -> None:
    cause = load_attribution(REFERENCE / "why" / "dio_kworker-6.12")
    results = collected(causes=[("dio_kworker-6.12", cause)])
    page = built(folder(tmp_path / "paper", results))["iolab.html"].decode()
    words = BeautifulSoup(page, "html.parser").get_text(" ", strip=True)
    assert "The switches that move the claims on dio_kworker" in " ".join(words.split())
    removing = cause.table[cause.table["effect"] == "removes"]["intervention"]
    assert len(removing) > 0
    for name in removing:
        assert re.search(rf"{name}\s+removes", words)
