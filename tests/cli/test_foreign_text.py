# SPDX-License-Identifier: MIT
"""An attack in every text that a machine says: on terminals, in notebooks, pages and exports."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest

from iolab.cli import main
from iolab.results import CellResult
from iolab.store.counters import check_result
from iolab_agent.facts import _facts, survey
from iolab_base import foreign
from iolab_base.errors import IolabError
from tests.support import synthetic
from tests.support.browser import Listener, listener, opened
from tests.support.liar import SAID, catalogue
from tests.support.liars import Liar
from tests.support.payloads import ADDRESS, MARK, PAYLOADS, TEXT, Attacked, controls
from tests.support.reports import report
from tests.support.results import result
from tests.support.said import entrances, keys_returned, placed, strings_of
from tests.support.sshd import Server
from tests.support.terminal import Said

pytestmark = pytest.mark.nightly

# What a Parquet file can hold.
_SAID = TEXT.encode("utf-8", "replace").decode()

_LONG = "x" * 1_000_000
_SWEEP = ("--pathology", "dio_kworker", "--profile", "smoke", "--make", "zram")
# The modules that read documents of a machine, of a store or of a file that somebody sent.
_ENTRANCES = {
    *("iolab.report.attribution", "iolab.store.dataset", "iolab.store.hashes"),
    *("iolab.store.dataset", "iolab.store.raw", "iolab.sweeps.answers", "iolab.sweeps.block"),
    *("iolab.targets.real", "iolab.targets.ssh", "iolab.targets.vm"),
    # They read what a sweep wrote of a block, and the results of an earlier sweep.
    *("iolab.store.files", "iolab.sweeps.sweep"),
    # It takes digests, which it compares.
    "iolab.store.tables",
    # It takes a number and nothing else.
    "icountvm.snapshots",
}

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process; return its code and all that it prints."""

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["iolab", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        told = capsys.readouterr()
        return ended.value.code, told.err + told.out

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that somebody else wrote."""
    data = report("dio_kworker", kernels=["6.1"])
    cells = data.cells.assign(kernel_release=_SAID, scheduler=_SAID, target=_SAID, gate=_SAID)
    cells["valid"] = cells["position"] > 1
    absent = pd.DataFrame([{"kernel": _SAID, "reason": _SAID}])
    made = replace(data, cells=cells, unavailable=absent)
    return synthetic.write(made, tmp_path_factory.mktemp("attacked") / "data")


@dataclass
class Lied:
    """A sweep of a machine that lied with every string that it can say."""

    said: Said
    root: Path
    tables: Path
    folder: Path
    heard: Listener


@pytest.fixture(scope="module")
def lied() -> Iterator[Lied]:
    with tempfile.TemporaryDirectory(prefix="f-") as made, listener() as heard:
        folder = Path(made)
        told = catalogue(TEXT.replace(ADDRESS, heard.address))
        for name in ("fio_said", "gate", "console"):
            told[name] += _LONG
        told["facts"]["command_line"] += _LONG
        told["facts"]["preflight"][0]["found"] += _LONG
        server = Liar(Server(folder))
        try:
            said = server.iolab(told, "sweep", *_SWEEP)
            (tables,) = server.root.rglob("cells.parquet")
            yield Lied(said, server.root, tables.parent, folder, heard)
        finally:
            server.down()


def test_the_machine_lies_with_every_string_that_it_can_say() -> None:
    # What enters anew must be said by the liar, too: in its catalogue, or in a cell's types.
    assert entrances() == _ENTRANCES
    assert set(SAID["survey"]) == keys_returned(survey)
    assert set(SAID["facts"]) == keys_returned(_facts) | {"preflight"}
    places = set(strings_of(CellResult))
    assert {("reason",), ("gates", "[]"), ("last", "tasks", "{}", "", "comm")} < places
    refused = {}
    for place in places:
        attacked = json.dumps(placed(result(), place, TEXT))
        try:
            check_result(foreign.document(attacked), cpu=0)
        except IolabError as error:
            refused[place] = str(error)
    # A job's result that says something of a program is no agent's.
    assert refused.keys() == {("program", "output")}
    assert not any(map(controls, refused.values()))


def test_a_sweep_of_a_liar_tells_a_terminal_words_alone(lied: Lied) -> None:
    assert lied.said.harmless()
    assert lied.said.code == 0, lied.said.words


def test_pages_and_notebooks_of_a_liar_hold_words_alone(lied: Lied) -> None:
    pages = sorted(lied.root.rglob("*.html"))
    # The report, its kernel, and the start page.
    assert len(pages) == 3
    for page in pages:
        assert Attacked.of(page).found == [], page
        assert not controls(page.read_text()), page
        notebook = nbformat.read(page.with_suffix(".ipynb"), 4)  # type: ignore[no-untyped-call]
        assert not controls(json.dumps(notebook, ensure_ascii=False)), page
        assert _LONG[: 1 << 17] not in page.read_text()
    # They are told, as words: each payload that was visible still is.
    words = "".join(" ".join(Attacked.of(page).text) for page in pages)
    assert PAYLOADS["typst"].replace(ADDRESS, lied.heard.address) in words
    for page in pages:
        opened(page, lied.folder / "profile")
    assert lied.heard.heard == []


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _strings(item)


@pytest.mark.parametrize(
    "words",
    [
        ("verdicts", "{folder}"),
        ("verdicts", "{folder}", "--claims"),
        ("verdicts", "{folder}", "--claims", "--json"),
        ("export", "{folder}"),
        ("export", "{folder}", "--json"),
        ("export", "--canonical", "{tables}", "--root", "{root}"),
        ("export", "{tables}"),
        ("fsck", "{folder}"),
        ("fsck", "{root}", "--json"),
        ("mail", "{folder}", "--kernel", "6.1"),
    ],
    ids=" ".join,
)
def test_a_command_prints_words_alone(
    words: tuple[str, ...], folder: Path, lied: Lied, printed: Command
) -> None:
    places = {"folder": folder, "root": lied.root, "tables": lied.tables}
    code, said = printed(*(word.format(**places) for word in words))
    assert code == 0
    assert said.strip()
    assert not controls(said)
    if "--json" in words:
        assert not any(controls(text) for text in _strings(json.loads(said)))
    if "--canonical" in words:
        lines = [json.loads(line) for line in said.splitlines()]
        assert any(MARK in line["gate"] for line in lines)
        assert not any(controls(text) or "\n" in text for text in _strings(lines))


def test_the_cells_tell_what_was_said(folder: Path, printed: Command) -> None:
    code, said = printed("export", str(folder), "--json")
    assert code == 0
    assert PAYLOADS["rich link"] in json.loads(said)[0]["gate"]


def test_a_mail_has_no_line_of_the_machines(folder: Path, printed: Command) -> None:
    code, said = printed("mail", str(folder), "--kernel", "6.1")
    assert (code, said.isascii()) == (0, True)
    assert said.startswith("Subject: ")
    (script,) = re.findall("^--8<--$(.*?)^-->8--$", said, re.M | re.S)
    # The script is run by whoever gets the mail.
    assert "fio " in script
    assert MARK not in script
    # What was said stands within lines of ours.
    assert MARK in said
    assert not [line for line in said.splitlines() if line.startswith("iolab: all is")]
