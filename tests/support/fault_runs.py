# SPDX-License-Identifier: MIT
"""Runs with a fault: where they happen, how they end, and what is looked at afterwards."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow.parquet

from iolab.store.raw import RawStore
from iolab.store.soundness import block_states
from tests.support.command import ARGV
from tests.support.liar import catalogue
from tests.support.liars import Liar
from tests.support.own_pathology import example
from tests.support.payloads import controls
from tests.support.processes import child_environment
from tests.support.sshd import Server
from tests.support.terminal import OnTerminal, Said

# What a command may end with: one of iolab's own errors, or a signal that it had time to name.
CODES: Final = (1, 2, 3, 129, 130, 143)
_VARIABLE: Final = "IOLAB_FAULTS"
_RUNTIME: Final = "runtime_ms=400"
_TABLES: Final = ("*.parquet", "blocks.json", "kernels.json", "unavailable.json", "hashes*")
_ENDS: Final = {".html": b"</html>", ".svg": b"</svg>"}


@dataclass(frozen=True)
class Run:
    """One run with a fault: what was done to it, how it ended, what was wrong, its last words."""

    what: str
    ending: Literal["result", "sentence", "killed"]
    wrongs: tuple[str, ...] = ()
    words: str = ""


Hear = Callable[[Run], None]


class Bench:
    """A user's machine: a home, a temporary folder, a pathology, and a server that is measured.

    The server answers at once with made-up results, so that a sweep costs no more than its own
    work. With `machine`, a virtual machine of this host is measured instead.
    """

    def __init__(self, folder: Path, number: int, *, boots: int, machine: bool = False) -> None:
        self.folder = folder
        self.root = folder / "runs"
        self.tmp = folder / "t"
        self.home = folder / "home"
        for made in (self.tmp, self.home, folder / "server"):
            made.mkdir(parents=True)
        self.liar = Liar(Server(folder / "server"))
        self.liar.say(catalogue(""))
        # Runs of the same plan meet on the measured machine, which all benches share.
        edits = [(_RUNTIME, f"runtime_ms={400 + number}")]
        edits += [('"smoke": profile(1)', f'"smoke": profile({boots})')]
        self.file = example(folder, *edits)
        self.token = f"{os.getpid()}-{number}"
        self._machine = machine

    def argv(self) -> list[str]:
        """Return the sweep."""
        words = ("sweep", "--pathology", str(self.file), "--profile", "smoke")
        if not self._machine:
            return self.liar.argv(*words, root=self.root)
        argv = [*ARGV, *words]
        return [*argv, "--kernel", "6.1", "--jobs", "1", "--root", str(self.root)]

    def environment(self) -> dict[str, str]:
        """Return the environment by which everything that a sweep starts is known."""
        own = {"TMPDIR": str(self.tmp), _VARIABLE: self.token}
        if self._machine:
            return child_environment(TERM="xterm-256color", COLUMNS="200", **own)
        return self.liar.environment(HOME=str(self.home), **own)

    def begin(self, argv: list[str] | None = None) -> OnTerminal:
        """Start the sweep, or another command."""
        return OnTerminal(argv or self.argv(), self.environment(), cwd=self.home)

    def processes(self) -> list[int]:
        """Return the ids of all processes that a sweep here started."""
        return sorted(_with_variable(f"{_VARIABLE}={self.token}"))

    def down(self) -> None:
        """End the server and whatever is left."""
        self.liar.down()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _with_variable(variable: str) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if variable.encode() in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)


def said_wrong(said: Said) -> list[str]:
    """Return what is wrong with the words and the code of a command that ended by itself."""
    words = said.words.strip()
    wrong = ["it told the terminal more than words"] if controls(words) else []
    if "Traceback" in said.text or "Exception ignored" in said.text:
        wrong.append(f"a traceback: {words[-1500:]}")
    if said.code == 0:
        return wrong
    if said.code not in CODES or "iolab: " not in said.last:
        wrong.append(f"exit code {said.code} with {said.last[-300:]!r}")
    return wrong


def _visible(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        if path.is_file() and not hidden:
            yield path


def left_over(*folders: Path) -> list[str]:
    """Return what no command leaves when it ends."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            name = path.name
            hidden = name.startswith(".") and name != ".sweep.lock"
            if hidden or name.endswith((".log", ".progress")):
                found.append(f"{path.relative_to(folder)} is left")
    return found


def half_written(root: Path) -> list[str]:
    """Return the files that are not whole."""
    found = []
    for path in _visible(root):
        data = path.read_bytes()
        try:
            if path.suffix == ".gz":
                data = gzip.decompress(data)
            if path.suffix in (".json", ".ipynb") or path.name.endswith(".json.gz"):
                json.loads(data)
            elif path.suffix == ".parquet":
                pyarrow.parquet.read_table(path)
            whole = data.rstrip().endswith(_ENDS.get(path.suffix, b""))
        except (OSError, EOFError, ValueError):
            whole = False
        if not whole:
            found.append(f"{path.relative_to(root)} is half written")
    return found


def store_wrongs(root: Path, kept: dict[str, Any]) -> list[str]:
    """Return which blocks are damaged, or not as they were before; `kept` gets what is there."""
    store = RawStore(root)
    found = [f"block {s.name}: {s.reason}" for s in block_states(store) if s.state != "sound"]
    now = {key: store.digests(key) for key in store.all_keys()}
    found += [f"block {key[:16]} is lost" for key in kept if now.get(key) != kept[key]]
    kept.update(now)
    return found


def tables_of(root: Path) -> dict[str, str]:
    """Return the digest of each table below a folder by its name."""
    paths = {path for pattern in _TABLES for path in root.rglob(pattern)}
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
        if "raw" not in path.relative_to(root).parts
    }
