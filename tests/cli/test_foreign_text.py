# SPDX-License-Identifier: MIT
"""Results with an attack in every text that a machine said: what each command prints of them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from iolab.cli import main
from iolab.store.raw import RawStore, block_key
from iolab.store.tidy import write_tables
from tests.support import synthetic
from tests.support.liar import catalogue
from tests.support.payloads import MARK, PAYLOADS, TEXT, controls
from tests.support.reports import report
from tests.support.results import TARGET, block, result, write_results

# What a Parquet file can hold.
_SAID = TEXT.encode("utf-8", "replace").decode()

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


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a block of a machine that lied, and its tables."""
    root = tmp_path_factory.mktemp("stored")
    made, said = block(), catalogue(TEXT)
    cells = [cell.id for cell in made.plan.cells]
    lies = {
        cells[0]: {"id": cells[0], "state": "failed", "reason": said["reason"], "gates": []},
        cells[1]: {**result(cells[1]), "gates": [said["gate"]], "fio_said": said["fio_said"]},
    }
    results = write_results(root / "results", made.plan, None, said["facts"], **lies)
    store, key = RawStore(root), block_key(made, TARGET)
    store.put(key, block=made, target=TARGET, results=results, run={})
    write_tables(store, [key], {"6.8": _SAID}, root / "sweep")
    return root


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
        ("export", "--canonical", "{stored}/sweep", "--root", "{stored}"),
        ("export", "{stored}/sweep"),
        ("fsck", "{folder}"),
        ("fsck", "{stored}", "--json"),
        ("mail", "{folder}", "--kernel", "6.1"),
    ],
    ids=" ".join,
)
def test_a_command_prints_words_alone(
    words: tuple[str, ...], folder: Path, stored: Path, printed: Command
) -> None:
    code, said = printed(*(word.format(folder=folder, stored=stored) for word in words))
    assert code == 0
    assert said.strip()
    assert not controls(said)
    if "--json" in words:
        assert not any(controls(text) for text in _strings(json.loads(said)))
    if "--canonical" in words:
        lines = [json.loads(line) for line in said.splitlines()]
        assert len(lines) == 4
        assert MARK in lines[0]["gate"]
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
