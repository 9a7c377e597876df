# SPDX-License-Identifier: MIT
"""Corrupted stores, plans, archives of results, hashes, tables and traces: read, or one sentence.

``python -m tests.support.corruption [CASES [SEED]]`` does as many as wanted; so does ``nox -s
faults``. A case that ends in anything else is printed with its seed.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sys
import tarfile
import tempfile
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from iolab.store.dataset import load
from iolab.store.hashes import HASHES, read_hashes
from iolab.store.raw import RawStore, block_key
from iolab.store.soundness import block_state
from iolab.store.tables import canonical_lines, write_tables
from iolab.sweeps.block import read_block, write_block
from iolab_base.errors import IolabError
from iolab_base.tars import unpack
from tests.support.results import TARGET, block, write_results
from tests.support.stores import spoil, stored, without_digests
from tests.support.trace_writer import EVENTS, Page, encode, trace_v6, trace_v7
from tracedat import TraceError, read

# What takes the place of a value in a document.
_ODD: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 10**400, 1e308, float("nan"), "", "\ud800", "x" * 5000, "../../etc"),
    *([], {}, [None], {"x": 1}, [[[[]]]]),
)


def flipped(data: bytes, draw: random.Random) -> bytes:
    """Return bytes with some flipped, lost, doubled or zeroed."""
    if not data:
        return b"\0"
    at, length = draw.randrange(len(data)), draw.choice((1, 2, 8, 100))
    how = draw.randrange(5)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + data[at + length :]
    if how == 2:
        return data[:at] + data[at : at + length] + data[at:]
    if how == 3:
        return data[:at] + bytes(len(data[at : at + length])) + data[at + length :]
    changed = bytearray(data)
    for _ in range(length):
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def reworded(data: bytes, draw: random.Random) -> bytes:
    """Return a JSON document in which another value stands somewhere, or a key is missing."""
    document = json.loads(data)
    holder: Any = [document]
    key: Any = 0
    while draw.random() < 0.8 and isinstance(holder[key], dict | list) and holder[key]:
        holder = holder[key]
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if isinstance(holder[key], int | float | str | None):
            break
    if isinstance(holder, dict) and draw.random() < 0.2:
        del holder[key]
    else:
        holder[key] = draw.choice(_ODD)
    return json.dumps(document if holder is not None else None).encode()


def spoilt(path: Path, draw: random.Random) -> None:
    """Change a file: its bytes, or the document in it."""
    packed = path.suffix == ".gz"

    def change(data: bytes) -> bytes:
        if not (path.suffix == ".json" or packed) or draw.random() < 0.4:
            return flipped(data, draw)
        try:
            plain = gzip.decompress(data) if packed else data
            changed = flipped(plain, draw) if path.name == HASHES else reworded(plain, draw)
        except (ValueError, EOFError, OSError, zlib.error):
            # It is spoilt already, with the archive that it came in.
            return flipped(data, draw)
        return gzip.compress(changed) if packed else changed

    spoil(path, change)


class Corruption:
    """Whole material of each kind in a folder, and cases in which a copy of it is corrupted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.case = folder / "case"
        self.whole = folder / "whole"
        (self.key,) = stored(self.whole / "store")
        store = RawStore(self.whole / "store")
        shutil.copytree(self.whole / "store", self.whole / "old")
        without_digests(RawStore(self.whole / "old"), self.key)
        write_tables(store, [self.key], {}, self.whole / "tables")
        self.made = block()
        write_block(self.whole / "plan" / "plan.json", self.made)
        write_results(self.whole / "results", self.made.plan)
        self._traces()

    def _traces(self) -> None:
        pages = [Page(1000)]
        for number in range(40):
            data = encode(EVENTS["sched_waking"], number, {"pid": number, "comm": f"t{number}"})
            pages[0].event(5, data)
        folder = self.whole / "traces"
        folder.mkdir()
        events = list(EVENTS.values())
        (folder / "v6.dat").write_bytes(trace_v6(events, [pages]))
        for how in ("none", "zlib", "zstd"):
            (folder / f"v7-{how}.dat").write_bytes(trace_v7(events, [pages], compression=how))

    def run(self, kind: str, seed: int) -> bool:
        """Corrupt and read once; return whether it was read.

        Raises
        ------
        AssertionError
            If it was refused in more than a sentence.
        """
        shutil.rmtree(self.case, ignore_errors=True)
        try:
            KINDS[kind](self, random.Random(f"{kind} {seed}"))
        except (IolabError, TraceError) as error:
            sentence = str(error)
            assert sentence, "no word"
            assert "Traceback" not in sentence
            assert len(sentence) < 3000
            return False
        return True

    def _copy(self, name: str) -> Path:
        shutil.copytree(self.whole / name, self.case)
        return self.case

    def _file(self, folder: Path, draw: random.Random) -> Path:
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        if not files:
            raise IolabError("nothing was unpacked")
        return draw.choice(files)

    def _stored(self, name: str, draw: random.Random) -> None:
        root = self._copy(name)
        store = RawStore(root)
        spoilt(self._file(root, draw), draw)
        store.check_format()
        state = block_state(store, self.key)
        assert len(state.reason.splitlines()) <= 1
        (root / "blocks.json").write_text(json.dumps([self.key]))
        list(canonical_lines(store, root))
        write_tables(store, [self.key], {}, root / "tables")
        if state.state == "damaged":
            raise IolabError(state.reason)

    def store(self, draw: random.Random) -> None:
        """Read a block with digests: whatever was changed is found, but in run.json."""
        self._stored("store", draw)

    def old_store(self, draw: random.Random) -> None:
        """Read a block of an iolab that wrote no digests."""
        self._stored("old", draw)

    def plan(self, draw: random.Random) -> None:
        """Read a plan."""
        path = self._copy("plan") / "plan.json"
        spoilt(path, draw)
        read_block(path)

    def archive(self, draw: random.Random) -> None:
        """Unpack and store the archive of a run's results."""
        self.case.mkdir()
        results = self.whole / "results"
        names = {f"results/{p.relative_to(results)}" for p in results.rglob("*") if p.is_file()}
        with tarfile.open(self.case / "a.tar", "w") as tar:
            for name in sorted(names):
                tar.add(self.whole / name, name)
        if draw.random() < 0.7:
            spoil(self.case / "a.tar", lambda data: flipped(data, draw))
        with (self.case / "a.tar").open("rb") as stream:
            unpack(stream, dict.fromkeys(names, 1 << 20), self.case)
        (self.case / "results").mkdir(exist_ok=True)
        if draw.random() < 0.5:
            spoilt(self._file(self.case / "results", draw), draw)
        store = RawStore(self.case / "store")
        store.put(
            block_key(self.made, TARGET),
            block=self.made,
            target=TARGET,
            results=self.case / "results",
            run={},
        )

    def hashes(self, draw: random.Random) -> None:
        """Read the hashes beside tables."""
        folder = self._copy("tables")
        spoilt(folder / HASHES, draw)
        read_hashes(folder, load(folder))

    def tables(self, draw: random.Random) -> None:
        """Read tables."""
        folder = self._copy("tables")
        spoilt(self._file(folder, draw), draw)
        load(folder)

    def trace(self, draw: random.Random) -> None:
        """Read a trace."""
        path = self._file(self._copy("traces"), draw)
        spoilt(path, draw)
        found = read(path)
        for name, count in found.events.items():
            if count:
                found.frame(name)


KINDS: Final[dict[str, Callable[[Corruption, random.Random], None]]] = {
    "store": Corruption.store,
    "old store": Corruption.old_store,
    "plan": Corruption.plan,
    "archive": Corruption.archive,
    "hashes": Corruption.hashes,
    "tables": Corruption.tables,
    "trace": Corruption.trace,
}


def main(cases: int = 10_000, seed: int = 1) -> int:
    """Corrupt and read; say what came of it, and return how many cases went wrong."""
    counted: Counter[tuple[str, str]] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        made = Corruption(Path(folder))
        for number in range(cases):
            kind = list(KINDS)[number % len(KINDS)]
            try:
                word = "read" if made.run(kind, seed + number) else "refused"
            except Exception:
                wrong, word = wrong + 1, "WRONG"
                print(f"{kind}, seed {seed + number}:\n{traceback.format_exc()}", flush=True)
            counted[kind, word] += 1
    for (kind, word), number in sorted(counted.items()):
        print(f"{kind:10} {word:8} {number}")
    print(f"{cases} corrupted files, {wrong} wrongs")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(*(int(word) for word in sys.argv[1:])) else 0)
