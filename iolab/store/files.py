# SPDX-License-Identifier: MIT
"""The folders of a store, and the files of a block: names, size limits and digests.

A block may come from anybody: it may contain regular files of these names, and nothing else.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from iolab_base import foreign
from iolab_base.errors import IolabError
from iolab_base.reading import (
    CONSOLE_BYTES,
    DOCUMENT_BYTES,
    RefusedFileError,
    digest_regular,
    entries,
)

# The folders that a store has in a folder of results; all others there are of sweeps.
RAW: Final = "raw"
ASIDE: Final = "set-aside"
PLANS: Final = "plans"
PROFILES: Final = "profiles"
# Not a name that a folder of results may have.
PARTITIONS: Final = ".tables"
# None of them has tables of a sweep.
OWN: Final = frozenset({RAW, ASIDE, PLANS, PROFILES, PARTITIONS})
# The SHA-256 of each of a block's files but run.json.
DIGESTS: Final = "sha256.json"
RUN: Final = "run.json"
# The texts in it, with the most characters of each.
_RUN_TEXTS: Final = {
    **dict.fromkeys(("started", "iolab", "python", "host_kernel"), 80),
    "pyperf_system_show": foreign.TEXT,
}
# Thirty years.
_MOST_S: Final = 1e9
_ID: Final = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
# The folders of a block, and the files in each.
_LAYOUT: Final = {
    "": re.compile(r"(block|target|facts|run|sha256)\.json|console\.txt"),
    "cells": re.compile(rf"{_ID}\.json\.gz"),
    "traces": re.compile(rf"{_ID}\.dat"),
}
_MOST_FILES: Final = 100_000
# For all files of a block, and for the archive it came in; a trace may take nearly all of it.
_MOST_BYTES: Final = 4 << 30


@contextmanager
def said_of(path: Path, kind: type[IolabError] = IolabError) -> Iterator[None]:
    """Raise an error that explains why a file or folder cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise kind(f"{path} is missing") from error
    except RefusedFileError as error:
        raise kind(f"{path} {error.strerror}") from error
    except OSError as error:
        raise kind(f"{path} cannot be read: {error.strerror}") from error


def files_of(folder: Path) -> dict[str, os.stat_result]:
    """Return the status of each file of a block by name; IolabError if it has any other entry."""
    found: dict[str, os.stat_result] = {}
    for below, known in _LAYOUT.items():
        if below and not os.path.lexists(folder / below):
            continue
        with said_of(folder / below):
            there = entries(folder / below, _MOST_FILES, below=folder.parent)
        for name, status in there.items():
            if not below and name in _LAYOUT:
                continue
            path = folder / below / name
            if not known.fullmatch(name):
                raise IolabError(f"{path} is not a file of a block")
            if not stat.S_ISREG(status.st_mode):
                raise IolabError(f"{path} is not a regular file")
            if status.st_size > most_bytes(name):
                raise IolabError(f"{path} has {status.st_size} bytes, more than any block's")
            found[f"{below}/{name}" if below else name] = status
    if (size := sum(status.st_size for status in found.values())) > _MOST_BYTES:
        raise IolabError(f"{folder} has {size} bytes, more than any block")
    return found


def most_bytes(name: str) -> int:
    """Return the most bytes of a block's file."""
    if name == "console.txt":
        return CONSOLE_BYTES
    return _MOST_BYTES if name.endswith(".dat") else DOCUMENT_BYTES


def digests_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of a block's files, without run.json, which differs between equal runs."""
    names = sorted(files_of(folder).keys() - {RUN, DIGESTS})
    return {name: digest_in(folder, name) for name in names}


def digest_in(folder: Path, name: str) -> str:
    """Return the SHA-256 of a file of a block; `IolabError` if it cannot be read."""
    with said_of(folder / name):
        return digest_regular(folder / name, most_bytes(name), below=folder.parent)


def run_of(said: bytes) -> dict[str, Any]:
    """Return the known fields of ``run.json`` (when and how a block was measured), checked."""
    try:
        run = foreign.document(said)
        if not isinstance(run, dict):
            raise TypeError("it is no object")
        texts = {name: run[name] for name in _RUN_TEXTS if name in run}
        wall_s = run.get("wall_s", 0.0)
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("a text is none")
        if type(wall_s) not in (int, float) or not 0 <= wall_s <= _MOST_S:
            raise ValueError("wall_s is no duration")
    except (ValueError, TypeError) as error:
        raise IolabError(f"a damaged {RUN} does not say when and how long it ran") from error
    known = {name: foreign.text(text, _RUN_TEXTS[name]) for name, text in texts.items()}
    return {**known, **({"wall_s": wall_s} if "wall_s" in run else {})}
