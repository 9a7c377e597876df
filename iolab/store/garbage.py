# SPDX-License-Identifier: MIT
"""What a folder of results can do without: plans of measured blocks, blocks that no sweep needs."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from iolab.errors import IolabError, UserError
from iolab.store.partitions import PARTITIONS
from iolab.store.raw import RawStore, named_blocks

__all__ = ["Garbage", "find_garbage", "remove_garbage"]

# Of the store: no tables of sweeps.
_OWN: Final = {"raw", "set-aside", PARTITIONS}
_UNKNOWN: Final = "which blocks its tables need is not known; sweep again, or remove that folder"

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
        ("plan", path) for path in _held(root / "plans") if path.name.partition(".")[0] in measured
    ]
    found += [("set aside", path) for path in _held(store.aside)]
    dropped = measured - _needed(root) if unused else set()
    for path in _held(root / "profiles"):
        if path.name not in measured or path.name in dropped:
            found.append(("profile", path))
    for path in _held(root / PARTITIONS, "[0-9a-f]*"):
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
            # What a link leads to is somebody else's.
            if one.path.is_dir() and not one.path.is_symlink():
                shutil.rmtree(one.path)
            else:
                one.path.unlink(missing_ok=True)
        except OSError as error:
            raise IolabError(f"cannot remove {one.path}: {error.strerror}") from error
        except RecursionError as error:
            raise IolabError(f"cannot remove {one.path}: its folders are too deep") from error


def _held(folder: Path, names: str = "*") -> list[Path]:
    """Return what is in a folder of the store, by name; nothing if it is a link."""
    return [] if folder.is_symlink() else sorted(folder.glob(names))


def _needed(root: Path) -> set[str]:
    """Return the keys that the sweeps below a folder name."""
    needed: set[str] = set()
    try:
        for name, below, files in os.walk(root):
            folder = Path(name)
            if folder == root:
                below[:] = [one for one in below if one not in _OWN]
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
    """Refuse a link to another place: tables there may need blocks, and it may be anybody's."""
    if folder.is_symlink() and not folder.resolve().is_relative_to(root.resolve()):
        raise UserError(f"{folder} is a link to another place")


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder, however deep."""
    size, left = 0, [path]
    while left:
        one = left.pop()
        # What vanishes meanwhile takes nothing, and neither does what has too long a name.
        with suppress(OSError):
            status = one.lstat()
            if stat.S_ISDIR(status.st_mode):
                left += one.iterdir()
            else:
                size += status.st_size
    return size
