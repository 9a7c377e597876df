# SPDX-License-Identifier: MIT
"""Find the files that a program needs to start: its loader, its libraries, and theirs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from iolab.errors import IolabError

__all__ = ["Needs", "closure", "link_chain", "needs"]


@dataclass(frozen=True)
class Needs:
    """What an ELF file says of itself and of the files that it needs to start.

    Parameters
    ----------
    machine : str
        Architecture and word size, as ``x86-64``, or the ELF specification's own name of another.
    loader : str
        Path of the program's loader; "" of a library or a static program.
    libraries : tuple of str
        Names of the libraries (DT_NEEDED), in the file's order.
    rpath, runpath : tuple of str
        Folders of libraries (DT_RPATH, DT_RUNPATH) as they stand in the file, ``$ORIGIN`` included.
    """

    machine: str
    loader: str = ""
    libraries: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


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


def needs(path: Path) -> Needs | None:
    """Return what an ELF file needs, or None if the file is no ELF file.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    IolabError
        If it begins like an ELF file and is damaged.
    """
    with path.open("rb") as stream:
        if stream.read(4) != b"\x7fELF":
            return None
        try:
            return _read(ELFFile(stream))
        except (ELFError, ValueError, IndexError) as error:
            raise IolabError(f"{path} is a damaged program: {error}") from error


def _read(file: ELFFile) -> Needs:
    known = file["e_machine"] == "EM_X86_64" and file.elfclass == 64
    machine = "x86-64" if known else f"{str(file['e_machine'])[3:]}, {file.elfclass} bits"
    found: dict[str, list[str]] = {"needed": [], "rpath": [], "runpath": []}
    loader = ""
    for segment in file.iter_segments():
        if isinstance(segment, InterpSegment):
            loader = str(segment.get_interp_name())
        # Not the section .dynamic: a stripped program may lack section headers.
        if isinstance(segment, DynamicSegment):
            for tag in segment.iter_tags():
                name = str(tag.entry.d_tag).removeprefix("DT_").lower()
                if name in found:
                    # Only tags of these kinds have the attribute.
                    found[name].append(str(getattr(tag, name)))
    folders = {n: tuple(f for v in found[n] for f in v.split(":") if f) for n in found}
    return Needs(machine, loader, tuple(found["needed"]), folders["rpath"], folders["runpath"])


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
        wants = needs(root / chain[-1])
        if wants is None:
            continue
        if wants.loader:
            todo.append(wants.loader.lstrip("/"))
        for library in wants.libraries:
            for folder in library_folders:
                if (root / folder / library).exists() or (root / folder / library).is_symlink():
                    todo.append(f"{folder}/{library}")
                    break
            else:
                raise IolabError(f"{root / chain[-1]} needs {library}, which is missing")
    return wanted
