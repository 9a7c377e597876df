# SPDX-License-Identifier: MIT
"""What a folder of results can do without: plans of measured blocks, blocks that no sweep needs."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from iolab.errors import IolabError
from iolab.store.partitions import PARTITIONS
from iolab.store.raw import RawStore

__all__ = ["Garbage", "find_garbage", "remove_garbage"]

Kind = Literal["plan", "set aside", "profile", "tables", "block"]


@dataclass(frozen=True)
class Garbage:
    """One file or folder that can be removed.

    Parameters
    ----------
    kind : {"plan", "set aside", "profile", "tables", "block"}
        A plan whose block is measured; a block that was set aside because it is damaged or was
        refused; the profiles, or the kept tables, of a block that is not in the store; a block
        that no sweep's tables are made of.
    path : Path
        Where it is.
    size_bytes : int
        What it takes.
    """

    kind: Kind
    path: Path
    size_bytes: int


def find_garbage(root: Path, *, unused: bool = False) -> list[Garbage]:
    """Return what a folder of results can do without, by kind and path.

    Parameters
    ----------
    root : Path
        A folder of results.
    unused : bool
        With the blocks that no ``blocks.json`` below `root` names. An interrupted sweep's blocks
        are among them, and those of an older agent.

    Raises
    ------
    UserError
        If the store is of another format.
    IolabError
        If a ``blocks.json`` is damaged: which blocks are needed is not known.
    """
    store = RawStore(root)
    store.check_format()
    measured = set(store.all_keys())
    found: list[tuple[Kind, Path]] = [
        ("plan", path)
        for path in sorted((root / "plans").glob("*"))
        if path.name.partition(".")[0] in measured
    ]
    found += [("set aside", path) for path in sorted((root / "set-aside").glob("*"))]
    dropped = measured - _needed(root) if unused else set()
    for path in sorted((root / "profiles").glob("*")):
        if path.name not in measured or path.name in dropped:
            found.append(("profile", path))
    for path in sorted((root / PARTITIONS).glob("[0-9a-f]*")):
        key = path.name.partition(".")[0]
        if key not in measured or key in dropped:
            found.append(("tables", path))
    found += [("block", store.folder(key)) for key in sorted(dropped)]
    return [Garbage(kind, path, _size(path)) for kind, path in found]


def remove_garbage(garbage: list[Garbage]) -> None:
    """Remove files and folders.

    Raises
    ------
    IolabError
        If one cannot be removed; those before it are gone.
    """
    for one in garbage:
        try:
            if one.path.is_dir():
                shutil.rmtree(one.path)
            else:
                one.path.unlink(missing_ok=True)
        except OSError as error:
            raise IolabError(f"cannot remove {one.path}: {error.strerror}") from error


def _needed(root: Path) -> set[str]:
    """Return the keys that the sweeps below a folder name."""
    needed: set[str] = set()
    for path in root.glob("*/**/blocks.json"):
        try:
            needed.update(json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise IolabError(
                f"{path} is damaged: which blocks its tables need is not known; sweep again, or "
                "remove that folder"
            ) from error
    return needed


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(p.lstat().st_size for p in files if not p.is_dir())
