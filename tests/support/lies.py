# SPDX-License-Identifier: MIT
"""Sweeps and restores of a machine that lies, behind a real sshd: another lie for each run."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from iolab.blocks import Block
from iolab.sweeps.block import write_block
from tests.support.archives import ARCHIVES
from tests.support.bombed_results import BOMBED
from tests.support.corruption import flipped, reworded
from tests.support.fault_runs import (
    CODES,
    Bench,
    Hear,
    Run,
    half_written,
    left_over,
    said_wrong,
    store_wrongs,
)
from tests.support.liar import catalogue
from tests.support.payloads import MARK, PAYLOADS, TEXT, Attacked, controls
from tests.support.terminal import Said

_END_S: Final = 1200
_BLOCK: Final = ("-m", "iolab.sweeps.block")
# How often all is measured with its pages; else the block's own process measures it alone.
_WITH_PAGES: Final = 0.15

Lie = Callable[[dict[str, Any], random.Random, Path], None]


def _words(draw: random.Random, folder: Path) -> str:
    """Return an attack on anyone who shows or runs a text."""
    touch = f"touch {folder}/{MARK}"
    ours = [f"$({touch})", f"`{touch}`", f"; {touch} ;", f"\n{touch}\n", f"' || {touch} #", TEXT]
    return draw.choice([*PAYLOADS.values(), *ours]) * draw.choice((1, 1, 300))


def _survey_value(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    said["survey"] = json.loads(reworded(json.dumps(said["survey"]).encode(), draw))


def _survey_bytes(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    odd = [b"[" * 200_000, b"{}", b"", b"\0" * 3_000_000, b"x" * 5_000_000]
    whole = json.dumps(said["survey"]).encode()
    said["survey"] = draw.choice([flipped(whole, draw), *odd]).decode("latin-1")


def _survey_words(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    name = draw.choice([k for k, v in said["survey"].items() if isinstance(v, str)])
    said["survey"][name] += _words(draw, folder)


def _refusal(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    said["stderr"] = f"first\niolab-agent: no {_words(draw, folder)}"
    said["code"] = draw.choice((1, 2, 3, 77, 126, 127, 254, 255 - 1))


def _ending(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    whole = {"exit": draw.choice((0, 1, 2, 3)), "stderr": f"it broke {_words(draw, folder)}"}
    said["ending"] = json.loads(reworded(json.dumps(whole).encode(), draw))


def _facts(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    said["facts"] = json.loads(reworded(json.dumps(said["facts"]).encode(), draw))
    if not isinstance(said["facts"], dict):
        said["facts"] = {}


def _facts_words(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    name = draw.choice([k for k, v in said["facts"].items() if isinstance(v, str)])
    said["facts"][name] += _words(draw, folder)


def _spoilt(name: str, how: str) -> Lie:
    def lie(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
        said["spoilt"] = {"name": name, "seed": draw.randrange(1 << 30), "how": how}

    return lie


def _archive(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    said["archive"] = draw.choice(sorted(ARCHIVES))


def _bomb(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    # What claims much, and is small: the others take minutes to be made and sent.
    said["bomb"] = draw.choice(sorted(name for name in BOMBED if name.startswith("cell")))


def _console(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    line = _words(draw, folder)
    said["console"] = f"iolab: cell 1/4 {line}\n{line}" * draw.choice((1, 50))


def _restore(said: dict[str, Any], draw: random.Random, folder: Path) -> None:
    said["restore"] = f"{_words(draw, folder)}\n" * draw.choice((1, 100))


LIES: Final[dict[str, Lie]] = {
    "survey": _survey_value,
    "bytes of a survey": _survey_bytes,
    "words of a survey": _survey_words,
    "refusal": _refusal,
    "ending": _ending,
    "facts": _facts,
    "words of facts": _facts_words,
    "cell": _spoilt("cells/*.json", "value"),
    "bytes of a cell": _spoilt("cells/*.json", "bytes"),
    "status": _spoilt("status.json", "value"),
    "bytes of results": _spoilt("**/*.json", "bytes"),
    "archive": _archive,
    "bomb": _bomb,
    "console": _console,
    "restore": _restore,
}


class _Told:
    """A bench whose server lies, and the block that it is asked to measure."""

    def __init__(self, bench: Bench, plan: Path) -> None:
        self.bench = bench
        self.plan = plan
        self.before = self._outside()

    def _outside(self) -> set[str]:
        """Return every file that no answer of the server may change or make."""
        own = (self.bench.root, self.bench.tmp)
        paths = (p for p in self.bench.folder.rglob("*") if not any(o in p.parents for o in own))
        return {str(path) for path in paths if ".cache" not in path.parts and path.is_file()}

    def run(self, name: str, draw: random.Random) -> Run:
        """Tell one lie."""
        said = catalogue("")
        LIES[name](said, draw, self.bench.folder)
        self.bench.liar.say(said)
        pages = name != "restore" and draw.random() < _WITH_PAGES
        argv = [sys.executable, *_BLOCK, str(self.plan), str(self.bench.root)]
        if name == "restore":
            argv = self.bench.liar.argv("restore", "--show")
        elif pages:
            argv = self.bench.argv()
        what = f"{name}{said['archive'] and ': ' + said['archive']}{' with pages' * pages}"
        try:
            told = self.bench.begin(argv).end(_END_S)
        except subprocess.TimeoutExpired:
            return Run(what, "killed", (f"it does not end in {_END_S} s",))
        block = argv[1:3] == list(_BLOCK)
        wrongs = _block_wrong(told) if block else said_wrong(told)
        wrongs += self._after()
        return Run(what, "sentence" if told.code else "result", tuple(wrongs), told.last)

    def _after(self) -> list[str]:
        root = self.bench.root
        wrongs = ["something is left running"] if self.bench.processes() else []
        wrongs += left_over(root, self.bench.tmp) + half_written(root) + store_wrongs(root, {})
        for page in root.rglob("*.html"):
            wrongs += [f"{page.name} runs {found}" for found in Attacked.of(page).found]
            wrongs += [f"{page.name} has controls"] if controls(page.read_text()) else []
        made = sorted(path for path in self._outside() - self.before if MARK in path)
        made += [path for path in sorted(self._outside() - self.before) if "home" in path]
        wrongs += [f"{path} was made" for path in made]
        wrongs += [f"{path} is gone" for path in sorted(self.before - self._outside())]
        shutil.rmtree(root, ignore_errors=True)
        return wrongs


def _block_wrong(told: Said) -> list[str]:
    """Return what is wrong with the last word of a block's process: its error, as JSON."""
    lines = told.words.strip().splitlines()
    if "Traceback" in told.text:
        return [f"a traceback: {told.words[-1500:]}"]
    if not told.code:
        return []
    try:
        words = str(json.loads(lines[-1])["error"])
    except (IndexError, ValueError, KeyError):
        return [f"no sentence: {told.words[-300:]!r}"]
    wrong = [] if words and told.code in CODES else [f"exit code {told.code}: {words!r}"]
    return wrong + (["its words hold more than words"] if controls(words) else [])


def _block_of(bench: Bench) -> Path:
    """Return the file of the block that a sweep of the bench measures, after measuring it once."""
    said = bench.begin().end(_END_S)
    assert said.code == 0, said.words
    (plan,) = (bench.root / "plans").glob("*.json")
    kept = bench.folder / "block.json"
    write_block(kept, Block.parse(json.loads(plan.read_text())))
    shutil.rmtree(bench.root)
    return kept


def tell_lies(folder: Path, runs: int, draw: random.Random, hear: Hear) -> None:
    """Measure a server as often, with another lie each time; `hear` hears of each."""
    bench = Bench(folder, 4, boots=1)
    try:
        told = _Told(bench, _block_of(bench))
        names = list(LIES)
        for number in range(runs):
            hear(told.run(names[number % len(names)], draw))
    finally:
        bench.down()
