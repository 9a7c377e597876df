# SPDX-License-Identifier: MIT
"""Removable parts of a folder of results: plans of measured blocks, blocks that no sweep needs."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from iolab.store.files import OWN, PARTITIONS, PLANS, PROFILES
from iolab.store.raw import RawStore, named_blocks
from iolab_base.errors import IolabError, UserError

__all__ = ["Garbage", "find_garbage", "remove_garbage"]

_UNKNOWN: Final = "which blocks its tables need is not known; sweep again, or remove that folder"

Kind = Literal["plan", "set aside", "profile", "tables", "block"]


@dataclass(frozen=True)
class Garbage:
    """One file or folder that can be removed.

    A "plan" belongs to a measured block. A block was "set aside" because it is damaged or was
    refused. A "profile" or "tables" belong to a block that is not in the store. A "block" is in no
    sweep's tables.
    """

    kind: Kind
    path: Path
    size_bytes: int


def find_garbage(root: Path, *, unused: bool = False) -> list[Garbage]:
    """Return the removable parts of a folder of results, by kind and path.

    `unused` includes blocks that no ``blocks.json`` below `root` names, such as those of an
    interrupted sweep or an older agent. Raises IolabError if a ``blocks.json`` is damaged: then it
    is unknown which blocks are needed.
    """
    store = RawStore(root)
    store.check_format()
    measured = set(store.all_keys())
    found: list[tuple[Kind, Path]] = [
        ("plan", path) for path in _held(root / PLANS) if path.name.partition(".")[0] in measured
    ]
    found += [("set aside", path) for path in _held(store.aside)]
    dropped = measured - _needed(root) if unused else set()
    for path in _held(root / PROFILES):
        if path.name not in measured or path.name in dropped:
            found.append(("profile", path))
    for path in _held(root / PARTITIONS, "[0-9a-f]*"):
        key = path.name.partition(".")[0]
        if key not in measured or key in dropped:
            found.append(("tables", path))
    found += [("block", store.folder(key)) for key in sorted(dropped)]
    return [Garbage(kind, path, _size(path)) for kind, path in found]


def remove_garbage(garbage: list[Garbage]) -> None:
    """Remove files and folders; stop with IolabError at the first that cannot be removed."""
    for one in garbage:
        try:
            # The target of a link is somebody else's.
            if one.path.is_dir() and not one.path.is_symlink():
                shutil.rmtree(one.path)
            else:
                one.path.unlink(missing_ok=True)
        except OSError as error:
            raise IolabError(f"cannot remove {one.path}: {error.strerror}") from error
        except RecursionError as error:
            raise IolabError(f"cannot remove {one.path}: its folders are too deep") from error


def _held(folder: Path, names: str = "*") -> list[Path]:
    """Return the contents of a folder of the store, by name; [] if it is a link."""
    return [] if folder.is_symlink() else sorted(folder.glob(names))


def _needed(root: Path) -> set[str]:
    """Return the keys that the sweeps below a folder name."""
    needed: set[str] = set()
    try:
        for name, below, files in os.walk(root):
            folder = Path(name)
            if folder == root:
                below[:] = [one for one in below if one not in OWN]
            for one in below:
                _refuse_leading_out(folder / one, root)
            if "blocks.json" in files:
                needed.update(named_blocks(folder))
    except UserError as error:
        raise IolabError(f"{error}: {_UNKNOWN}") from error
    except RecursionError as error:
        raise IolabError(f"the folders below {root} are too deep: {_UNKNOWN}") from error
    return needed


def _refuse_leading_out(folder: Path, root: Path) -> None:
    """Refuse a link to another place: tables there may need blocks, and may be anybody's."""
    if folder.is_symlink() and not folder.resolve().is_relative_to(root.resolve()):
        raise UserError(f"{folder} is a link to another place")


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder, however deep."""
    size, left = 0, [path]
    while left:
        one = left.pop()
        # Files that vanish meanwhile, or whose names are too long, count as nothing.
        with suppress(OSError):
            status = one.lstat()
            if stat.S_ISDIR(status.st_mode):
                left += one.iterdir()
            else:
                size += status.st_size
    return size
