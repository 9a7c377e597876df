# SPDX-License-Identifier: MIT
"""A machine that lies, behind a real sshd: what its words do to terminal, page and figure."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.support.browser import listener, opened
from tests.support.liar import catalogue
from tests.support.payloads import ADDRESS, MARK, PAYLOADS, TEXT, Attacked, controls
from tests.support.processes import child_environment
from tests.support.sshd import NEEDS, Server

pytestmark = NEEDS

_REPOSITORY = Path(__file__).resolve().parents[2]
# What rich itself says to a terminal: colours, the cursor of its progress bar, a line cleared.
_OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[12]?[AK]|\r")
# Payloads of one line, short ones first: of what an agent says at its end, the last line counts.
_LINES = [text for text in PAYLOADS.values() if len(text.splitlines()) == 1]
_LAST = " ".join(sorted(_LINES, key=len))
_SWEEP = ("--pathology", "dio_kworker", "--profile", "smoke", "--make", "zram")


@dataclass
class Said:
    """What a sweep of a machine that lies said to a terminal, and where its results are."""

    code: int
    text: str
    root: Path

    def harmless(self) -> bool:
        """Tell whether the terminal was told nothing but words, and all in one piece."""
        assert not controls(_OWN.sub("", self.text))
        assert "Traceback" not in self.text
        return True


class Liar:
    """A server whose Python lies, and the command line that measures there."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.folder = server.folder
        self.catalogue = self.folder / "catalogue.json"
        run = f"PYTHONPATH={_REPOSITORY} exec {sys.executable} -m tests.support.liar"
        server.program("python3", f'{run} {self.catalogue} "$@"')
        # The client that the user has, with a configuration that knows this server.
        programs = self.folder / "client"
        programs.mkdir()
        (programs / "ssh").write_text(
            f'#!/bin/sh\nexec {shutil.which("ssh")} -F {server.config} "$@"\n'
        )
        (programs / "ssh").chmod(0o755)
        self.path = f"{programs}:{os.environ['PATH']}"

    def iolab(self, said: dict[str, Any], *words: str, root: str = "runs") -> Said:
        """Run a command against the liar on a terminal of its own."""
        self.catalogue.write_text(json.dumps(said))
        argv = [sys.executable, "-c", "from iolab.cli import main; main()", *words]
        argv += ["--target", self.server.address]
        if words[0] == "sweep":
            argv += ["--root", str(self.folder / root)]
        master, terminal = pty.openpty()
        seen: list[bytes] = []

        def read() -> None:
            try:
                while data := os.read(master, 1 << 16):
                    seen.append(data)
            except OSError:
                # The terminal was hung up.
                pass

        reader = threading.Thread(target=read)
        reader.start()
        environment = child_environment(PATH=self.path, TERM="xterm-256color", COLUMNS="200")
        code = subprocess.run(
            argv, env=environment, stdout=terminal, stderr=terminal, check=False, timeout=1800
        ).returncode
        os.close(terminal)
        reader.join()
        os.close(master)
        return Said(code, b"".join(seen).decode(errors="surrogateescape"), self.folder / root)


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[Liar]:
    server = Server(tmp_path)
    try:
        yield Liar(server)
    finally:
        server.down()
        begun = tmp_path / "begun"
        for folder in begun.read_text().splitlines() if begun.exists() else ():
            shutil.rmtree(folder, ignore_errors=True)


def test_what_a_liar_measured_harms_nobody(liar: Liar) -> None:
    with listener() as heard:
        text = TEXT.replace(ADDRESS, heard.address)
        made = catalogue(text)
        long = "x" * 10_000_000
        made["fio_said"] += long
        made["gate"] += long
        made["console"] += long
        made["facts"]["command_line"] += long
        made["facts"]["preflight"][0]["found"] += long
        said = liar.iolab(made, "sweep", *_SWEEP)
        assert said.harmless()
        assert said.code == 0
        pages = sorted(said.root.rglob("*.html"))
        assert {page.name.partition(".")[0] for page in pages} >= {"dio_kworker", "smoke-root-127"}
        # Two blocks, the report, its kernel, and the start page.
        assert len(pages) == 5
        for page in pages:
            seen = Attacked.of(page)
            assert seen.found == [], page
            notebook = nbformat.read(page.with_suffix(".ipynb"), 4)  # type: ignore[no-untyped-call]
            assert not controls(json.dumps(notebook, ensure_ascii=False)), page
            assert long[: 1 << 17] not in page.read_text()
        # They are told, as words: each payload that was visible still is.
        words = "".join(" ".join(Attacked.of(page).text) for page in pages)
        assert PAYLOADS["typst"].replace(ADDRESS, heard.address) in words
        for page in pages:
            opened(page, liar.folder / "profile")
        assert heard.heard == []


@pytest.mark.parametrize("part", ["survey", "facts"])
def test_a_kernel_whose_name_is_none_is_refused(liar: Liar, part: str) -> None:
    made = catalogue("")
    made[part]["kernel_release"] += TEXT
    said = liar.iolab(made, "sweep", *_SWEEP)
    assert said.harmless()
    assert said.code == 1
    assert "a kernel_release that is no name" in said.text
    assert list(said.root.glob("raw/*")) == []


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
