# SPDX-License-Identifier: MIT
"""Programs and headers of this machine that compile a kernel, and the command that installs them.

They are the system's: a kernel developer's own compiler is the one that counts. A build runs the
tree's code, so it gets only what compilers need from the user's environment.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from iolab_base.errors import CannotRunError
from iolab_base.process import CommandError, run

# By program, or header: its package in Debian and Ubuntu, in Fedora and openSUSE, and in Arch.
_NEEDED = {
    "gcc": ("gcc", "gcc", "gcc"),
    "ld": ("binutils", "binutils", "binutils"),
    "make": ("make", "make", "make"),
    "flex": ("flex", "flex", "flex"),
    "bison": ("bison", "bison", "bison"),
    "bc": ("bc", "bc", "bc"),
    "perl": ("perl", "perl", "perl"),
    "gzip": ("gzip", "gzip", "gzip"),
    "gelf.h": ("libelf-dev", "elfutils-libelf-devel", "libelf"),
}
_OPENSUSE = {"gelf.h": "libelf-devel"}
# Where compilers look for headers; a multiarch folder lies below the first one.
_HEADERS = (Path("/usr/include"), Path("/usr/local/include"))
_MANAGERS = (
    ("apt-get", "apt-get install", 0),
    ("dnf", "dnf install", 1),
    ("zypper", "zypper install", 1),
    ("pacman", "pacman -S", 2),
)
# Passed from the user's environment: the places of programs, headers, libraries and the compiler's
# cache, and whose trees git may read under sudo. No token, no agent, nothing that changes a build.
_PASSED = (
    *("PATH", "TMPDIR", "LD_LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH"),
    *("PKG_CONFIG_PATH", "CCACHE_DIR", "CCACHE_CONFIGPATH", "CCACHE_DISABLE", "SUDO_UID"),
)


@dataclass(frozen=True)
class Missing:
    """Missing programs and headers, and the command that installs them."""

    names: tuple[str, ...]
    fix: str


def environment(home: Path) -> dict[str, str]:
    """Return the whole environment of a command that may run a tree's code, with this home."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {**passed, "HOME": str(home), "LC_ALL": "C.UTF-8"}


def compiler() -> str:
    """Return the C compiler for kernels: ``CC`` of the environment, or gcc."""
    own = os.environ.get("CC", "")
    return own if own.strip() else "gcc"


def compiler_version() -> str:
    """Return the first line of the compiler's ``--version``; CannotRunError if it cannot be run."""
    try:
        text = run([*compiler().split(), "--version"], timeout_s=60).stdout
    except CommandError as error:
        raise CannotRunError(f"the compiler {compiler()} cannot be run: {error.reason}") from error
    return (text.splitlines() or [compiler()])[0]


def _has(name: str) -> bool:
    if not name.endswith(".h"):
        return shutil.which(name) is not None
    return any((folder / name).exists() for folder in _HEADERS)


def missing_tools() -> Missing | None:
    """Return what this machine lacks to compile kernels, or None."""
    # CC may have options, or a word before the compiler: "ccache gcc".
    words = [*takewhile(lambda word: not word.startswith("-"), compiler().split())]
    own = {"gcc": words[-1] if words else compiler()}
    names = [name for name in _NEEDED if not _has(own.get(name, name))]
    if not names:
        return None
    for program, command, column in _MANAGERS:
        if shutil.which(program):
            packages = [_NEEDED[name][column] for name in names]
            if program == "zypper":
                packages = [_OPENSUSE.get(n, p) for n, p in zip(names, packages, strict=True)]
            return Missing(tuple(names), f"as root: {command} {' '.join(packages)}")
    return Missing(tuple(names), f"install {', '.join(names)}")


def check_tools() -> None:
    """Raise CannotRunError, with the command to type, if kernels cannot be compiled here."""
    if (lacking := missing_tools()) is not None:
        raise CannotRunError(
            f"a kernel cannot be compiled here without {', '.join(lacking.names)}; {lacking.fix}"
        )
