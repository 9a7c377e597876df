# SPDX-License-Identifier: MIT
"""Find the libraries of a program where its loader does."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from icountvm.elf import MACHINE, Needs, needs
from iolab_base.errors import IolabError, UserError
from iolab_base.process import run

_CACHED: Final = re.compile(r"^\s*(\S+) \((.*)\) => (/.*)$")
_DEFAULT_FOLDERS: Final = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
# The C library opens it with dlopen when a thread is cancelled: no program needs it by name.
_LIBGCC: Final = "libgcc_s.so.1"


def libraries_of(path: Path, wants: Needs, folders: Sequence[Path] = ()) -> dict[str, Path]:
    """Return the libraries of a program, and theirs, by the names under which they are needed.

    They are searched in `folders`, or where the loader does. UserError if one is missing.
    """
    found: dict[str, Path] = {}
    todo = [(path, wants, name) for name in wants.libraries]
    while todo:
        needer, needer_wants, name = todo.pop(0)
        if name in found:
            continue
        places = [f / name for f in folders] or _places(name, needer, needer_wants, path, wants)
        library = next((place.absolute() for place in places if _is_library(place)), None)
        if library is None:
            raise UserError(
                f"the program {path} needs the library {name} (by {needer.name}), which is missing "
                "here: install its package"
            )
        found[name] = library
        more = needs(library) or Needs(MACHINE)
        todo += [(library, more, other) for other in more.libraries]
    if "libc.so.6" in found and not folders and _LIBGCC in _cached_libraries():
        found.setdefault(_LIBGCC, _cached_libraries()[_LIBGCC])
    return found


def _places(name: str, needer: Path, needer_wants: Needs, path: Path, wants: Needs) -> list[Path]:
    """Return where the loader searches for a library, in its order (ld.so(8))."""
    folders: list[Path] = []
    if not needer_wants.runpath:
        folders += _expanded(needer_wants.rpath, needer) + _expanded(wants.rpath, path)
    folders += [Path(f) for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    folders += _expanded(needer_wants.runpath, needer)
    cached = [_cached_libraries()[name]] if name in _cached_libraries() else []
    return [*(f / name for f in folders), *cached, *(Path(f) / name for f in _DEFAULT_FOLDERS)]


def _is_library(path: Path) -> bool:
    """Return whether a file is a library for the guest's architecture; the loader skips others."""
    try:
        wants = needs(path) if path.is_file() else None
    except (OSError, IolabError):
        return False
    return wants is not None and wants.machine == MACHINE


def _expanded(folders: Sequence[str], origin: Path) -> list[Path]:
    at = str(origin.resolve().parent)
    return [Path(f.replace("${ORIGIN}", at).replace("$ORIGIN", at)) for f in folders]


@cache
def _cached_libraries() -> dict[str, Path]:
    """Return the libraries in this machine's ld.so.cache; empty without ldconfig."""
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    if ldconfig is None:
        return {}
    libraries: dict[str, Path] = {}
    for line in run([ldconfig, "-p"], timeout_s=30, check=False).stdout.splitlines():
        entry = _CACHED.match(line)
        # "hwcap" marks libraries for newer processors than the guest's.
        if entry and MACHINE in entry[2] and "hwcap" not in entry[2]:
            libraries.setdefault(entry[1], Path(entry[3]))
    return libraries
