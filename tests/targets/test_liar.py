# SPDX-License-Identifier: MIT
"""A machine that lies, behind a real sshd: and ends in a sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iolab.store.raw import RawStore
from iolab.store.soundness import block_states
from tests.support.command import noting_peak
from tests.support.liar import catalogue
from tests.support.liars import Liar
from tests.support.payloads import MARK, PAYLOADS, TEXT
from tests.support.processes import PATIENCE_S
from tests.support.sshd import NEEDS, Server
from tests.support.terminal import OnTerminal

pytestmark = [pytest.mark.nightly, NEEDS]

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
    assert "invalid kernel_release" in said.text
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
    long = "x" * (1 << 20)
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


@pytest.mark.parametrize("bomb", ["trace: chunks of 16 MiB", "cell: 31 MiB of objects"])
def test_a_block_that_is_a_bomb_is_named_and_the_others_are_kept(
    liar: Liar, tmp_path: Path, bomb: str
) -> None:
    liar.say({**catalogue(""), "bomb": bomb, "bombed": "boot0"})
    note = tmp_path / "peak"
    words = ("--set", "weight=1000", "--record", "weight=1000", "--boots", "2")
    argv = noting_peak(note, liar.argv("sweep", *_SWEEP, *words))
    said = OnTerminal(argv, liar.environment()).end(PATIENCE_S * 3)
    assert said.harmless()
    assert said.code == 1
    assert "of root@127.0.0.1" in said.text
    states = [state.state for state in block_states(RawStore(liar.root))]
    assert states == ["sound"]
    assert int(note.read_text()) < 1.5 * (1 << 30)


@pytest.mark.parametrize("archive", ["a sparse map", "pax headers", "a pax header of 32 MiB"])
def test_an_archive_that_is_a_bomb_is_refused_at_its_header(
    liar: Liar, tmp_path: Path, archive: str
) -> None:
    liar.say({**catalogue(""), "archive": archive})
    target = f"SshTarget({liar.server.address!r}, config=Path({str(liar.server.config)!r}))"
    note, plan = tmp_path / "peak", "plan(null_blk_cell('one'))"
    script = f"""
from pathlib import Path
from iolab_base.tars import TarError
from iolab.targets.ssh import SshTarget
from tests.support.plans import null_blk_cell, plan
try:
    {target}.run({plan}, Path({str(tmp_path)!r}) / "results")
except TarError as error:
    print(error)
"""
    done = subprocess.run(
        noting_peak(note, [sys.executable, "-c", script]),
        env=liar.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.stdout.startswith("the archive of root@127.0.0.1"), done.stderr
    assert int(note.read_text()) < 1 << 28
    assert not (tmp_path / "results").exists()
