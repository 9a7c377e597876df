# SPDX-License-Identifier: MIT
"""Stores of made-up blocks, and ways to damage what is in them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from iolab.store.files import DIGESTS
from iolab.store.raw import RawStore, block_key
from tests.support.results import TARGET, block, write_results

QUIET: Final[dict[str, Any]] = {
    "what": "load of the measured CPU",
    "found": "2 %",
    "good": True,
    "needed": True,
}
BUSY: Final[dict[str, Any]] = {**QUIET, "found": "45 %", "good": False}


def stored(
    root: Path, *, boots: int = 1, preflight: list[dict[str, Any]] | None = None
) -> list[str]:
    """Put made-up blocks of four cells into the store below a folder; return their keys."""
    store, keys = RawStore(root), []
    for boot in range(boots):
        made = block(boot)
        work = root.with_name(f"{root.name}-results-{boot}")
        results = write_results(work, made.plan, preflight)
        keys.append(block_key(made, TARGET))
        store.put(keys[-1], block=made, target=TARGET, results=results, run={"iolab": "0.0.9"})
        shutil.rmtree(work)
    return keys


def spoil(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change what a file holds, even if it is read-only."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(change(data))


def without_digests(store: RawStore, key: str) -> None:
    """Make a block one of an iolab that wrote no digests."""
    (store.folder(key) / DIGESTS).unlink()


# Damages of a block: what is spoilt, and how.
SPOILT: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "a cut block": ("block.json", lambda data: data[:-1]),
    "an empty block": ("block.json", lambda data: b""),
    "a block that is a list": ("block.json", lambda data: b"[]"),
    "another seed": ("block.json", lambda data: data.replace(b'"seed":', b'"seed":1', 1)),
    "a deep block": ("block.json", lambda data: b"[" * 100_000),
    "another target": ("target.json", lambda data: data.replace(b"QEMU 10", b"QEMU 11")),
    "a surrogate": ("target.json", lambda data: data.replace(b"QEMU 10", b"\\ud800")),
    "another fact": ("facts.json", lambda data: data.replace(b"CFS", b"EEVDF")),
    "no facts": ("facts.json", lambda data: b"{}"),
    "a run that is a list": ("run.json", lambda data: b"[]"),
    "a run of letters": ("run.json", lambda data: b'{"wall_s": "x"}'),
    "a cut cell": ("cells/c001.json.gz", lambda data: data[:100]),
    "a flipped bit": (
        "cells/c002.json.gz",
        lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
    ),
}
