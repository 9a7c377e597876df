# SPDX-License-Identifier: MIT
"""A machine that lies, behind a real sshd: and ends in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.liar import catalogue
from tests.support.liars import Liar
from tests.support.payloads import MARK, PAYLOADS, TEXT
from tests.support.sshd import NEEDS, Server

pytestmark = NEEDS

# Payloads of one line, short ones first: of what an agent says at its end, the last line counts.
_LINES = [text for text in PAYLOADS.values() if len(text.splitlines()) == 1]
_LAST = " ".join(sorted(_LINES, key=len))
_SWEEP = ("--pathology", "dio_kworker", "--profile", "smoke", "--make", "zram")


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[Liar]:
    found = Liar(Server(tmp_path))
    try:
        yield found
    finally:
        found.down()


@pytest.mark.parametrize("part", ["survey", "facts"])
def test_a_kernel_whose_name_is_none_is_refused(liar: Liar, part: str) -> None:
    made = catalogue("")
    made[part]["kernel_release"] += TEXT
    said = liar.iolab(made, "sweep", *_SWEEP)
    assert said.harmless()
    assert said.code == 1
    assert "a kernel_release that is no name" in said.text
    assert list(liar.root.glob("raw/*")) == []


def test_every_last_word_is_shown_as_words(liar: Liar) -> None:
    lacks = catalogue("")
    lacks["survey"]["lacks"] = f"no fio {_LAST}"
    gone = {**catalogue(""), "ending": {"exit": 1, "stderr": f"first\nit broke {_LAST}"}}
    upset = {**catalogue(""), "stderr": f"first\niolab-agent: upset {_LAST}"}
    for made, word in ((lacks, "no fio"), (gone, "it broke"), (upset, "upset")):
        said = liar.iolab(made, "sweep", *_SWEEP)
        assert said.harmless()
        assert said.code in (1, 3)
        assert word in said.text
        assert MARK in said.text
        assert f"[/{MARK}] :skull:" in said.text
    said = liar.iolab({**catalogue(""), "restore": f"{TEXT}\n{TEXT}\n"}, "restore", "--show")
    assert said.harmless()
    assert f"[link=file:///etc/{MARK}]{MARK}[/link]" in said.text


@pytest.mark.parametrize("where", ["lacks", "ending", "restore"])
def test_a_last_word_without_end_is_cut(liar: Liar, where: str) -> None:
    made = catalogue("")
    long = "x" * (1 << 21)
    if where == "lacks":
        made["survey"]["lacks"] = long
    elif where == "ending":
        made["ending"] = {"exit": 1, "stderr": 5 * long}
    else:
        made["restore"] = long
    words = ("restore", "--show") if where == "restore" else ("sweep", *_SWEEP)
    said = liar.iolab(made, *words)
    assert said.harmless()
    assert "xxx…" in said.text
    assert "x" * 2000 not in said.text
