# SPDX-License-Identifier: MIT
"""Find the files that a program needs to start: its loader, its libraries, and theirs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from iolab.errors import IolabError

__all__ = ["closure", "link_chain"]


def link_chain(root: Path, name: str) -> list[str]:
    """Follow symbolic links.

    Parameters
    ----------
    root : Path
        The folder that the links take for ``/``.
    name : str
        A path relative to `root`.

    Returns
    -------
    list of str
        `name`, the links that it leads to, and the file; all relative to `root`.

    Raises
    ------
    IolabError
        If a link leads to itself, or to a file that does not exist.
    """
    chain = [name]
    while (root / chain[-1]).is_symlink():
        target = (root / chain[-1]).readlink()
        at = PurePosixPath("/") / PurePosixPath(chain[-1]).parent / target
        chain.append(os.path.normpath(at).lstrip("/"))
        if len(chain) > 40:
            raise IolabError(f"{root / name} is a link that leads to itself")
    if not (root / chain[-1]).exists():
        raise IolabError(f"{root / name} is missing")
    return chain


def _needs(path: Path) -> tuple[list[str], list[str]]:
    """Return the libraries (names) and the loader (path) that an ELF file needs."""
    libraries: list[str] = []
    with path.open("rb") as stream:
        if stream.read(4) != b"\x7fELF":
            return [], []
        file = ELFFile(stream)
        loaders = [
            segment.get_interp_name().lstrip("/")
            for segment in file.iter_segments()
            if isinstance(segment, InterpSegment)
        ]
        section = file.get_section_by_name(".dynamic")
        if isinstance(section, DynamicSection):
            needed = section.iter_tags("DT_NEEDED")
            # Only DT_NEEDED tags have this attribute.
            libraries = [str(getattr(tag, "needed")) for tag in needed]  # noqa: B009
    return libraries, loaders


def closure(root: Path, names: Iterable[str], library_folders: Sequence[str]) -> set[str]:
    """Return programs with all files that they need to start, including links.

    Parameters
    ----------
    root : Path
        The folder that the programs take for ``/``.
    names : iterable of str
        Programs and libraries, relative to `root`.
    library_folders : sequence of str
        Folders of libraries, relative to `root`; the first one with a library provides it.

    Returns
    -------
    set of str
        Files and links, relative to `root`.

    Raises
    ------
    IolabError
        If a file or a library is missing.
    """
    wanted: set[str] = set()
    todo = list(names)
    while todo:
        chain = link_chain(root, todo.pop())
        if wanted.issuperset(chain):
            continue
        wanted.update(chain)
        libraries, loaders = _needs(root / chain[-1])
        todo += loaders
        for library in libraries:
            for folder in library_folders:
                if (root / folder / library).exists() or (root / folder / library).is_symlink():
                    todo.append(f"{folder}/{library}")
                    break
            else:
                raise IolabError(f"{root / chain[-1]} needs {library}, which is missing")
    return wanted
