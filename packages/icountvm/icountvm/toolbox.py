# SPDX-License-Identifier: MIT
"""Programs that make and run virtual machines, the same on every host.

They are Debian's, unpacked into the cache with all their dependencies down to the C library, and
started through that library's own loader. Nothing is installed, no root is needed, and the same
QEMU gives the same measured bytes on every host.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from icountvm.parts import unpacked
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import digest_file, remove
from iolab_base.process import CommandError, run
from iolab_base.reading import in_root

OLDEST_QEMU = (10, 0, 0)

_QEMU = "qemu-system-x86_64"
_UNUSED = (
    "usr/bin/qemu-system-i386",
    "usr/bin/qemu-system-x86_64-microvm",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
)
_ROMS = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu", "usr/share/ipxe/qemu")
_LOADERS = ("lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2")
_LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
_PROGRAMS = ("usr/bin", "usr/sbin", "bin", "sbin")


@dataclass(frozen=True)
class Toolbox:
    """Programs that are unpacked into a folder, and the commands that run them."""

    root: Path

    def command(self, name: str) -> list[str]:
        """Return the command that runs one of the programs; append its arguments."""
        path, libraries = self.program(name), ":".join(map(str, self.libraries))
        # kmod acts as the program whose name it was called by.
        return [str(self.loader()), "--library-path", libraries, "--argv0", name, str(path)]

    @property
    def libraries(self) -> list[Path]:
        """Folders of the programs' libraries."""
        return [self.root / folder for folder in _LIBRARIES]

    def program(self, name: str) -> Path:
        """Return the file of a program."""
        return self._file((f"{folder}/{name}" for folder in _PROGRAMS), name)

    def loader(self) -> Path:
        """Return the loader of the programs' own C library."""
        return self._file(_LOADERS, "its loader")

    def qemu_argv(self) -> list[str]:
        """Return the command that runs QEMU: the toolbox's, or that of ``IOLAB_QEMU``."""
        return _users_qemu() or self.own_qemu_argv()

    def qemu_version(self) -> tuple[int, int, int]:
        """Return QEMU's version; UserError if ``IOLAB_QEMU`` is not a QEMU, or too old."""
        return _version(self.qemu_argv(), os.environ.get("IOLAB_QEMU", ""))

    def own_qemu_argv(self) -> list[str]:
        """Return the command that runs the toolbox's QEMU, whatever ``IOLAB_QEMU`` names."""
        folders = [self.root / rom for rom in _ROMS if (self.root / rom).is_dir()]
        return [*self.command(_QEMU), *(part for rom in folders for part in ("-L", str(rom)))]

    def identity(self) -> str:
        """Return QEMU's version and the SHA-256 of its program on one line."""
        version = ".".join(map(str, self.qemu_version()))
        (program,) = _users_qemu() or [str(self.root / "usr" / "bin" / _QEMU)]
        return f"QEMU {version} sha256:{digest_file(Path(program))}"

    def _file(self, names: Iterable[str], what: str) -> Path:
        for name in names:
            if (path := in_root(self.root, PurePath(name))).exists():
                return path
        raise IolabError(
            f"the toolbox in {self.root} lacks {what}: delete that folder to make it again"
        )


def _users_qemu() -> list[str]:
    """Return the command of ``IOLAB_QEMU``, or [] without it."""
    own = os.environ.get("IOLAB_QEMU")
    if not own:
        return []
    program = shutil.which(own)
    if program is None:
        raise UserError(f"IOLAB_QEMU is not a program that can be run: {own}")
    return [program]


def _version(argv: list[str], own: str) -> tuple[int, int, int]:
    """Return a QEMU's version; `own` is what ``IOLAB_QEMU`` names, if it is the user's."""
    try:
        text = run([*argv, "--version"], timeout_s=60).stdout
    except CommandError as error:
        if own:
            raise UserError(f"IOLAB_QEMU cannot be run: {own}: {error.reason}") from error
        raise
    numbers = re.match(r"QEMU emulator version (\d+)\.(\d+)\.(\d+)", text)
    if numbers is None:
        raise UserError(f"IOLAB_QEMU is not a QEMU system emulator: {own}")
    version = (int(numbers[1]), int(numbers[2]), int(numbers[3]))
    if version < OLDEST_QEMU:
        raise UserError(
            f"{own or _QEMU} is QEMU {'.'.join(map(str, version))}: before "
            f"{OLDEST_QEMU[0]}.{OLDEST_QEMU[1]} a machine with several CPUs hangs when its "
            "instructions are counted; unset IOLAB_QEMU to use iolab's own QEMU"
        )
    return version


def ensure_toolbox() -> Toolbox:
    """Return the toolbox; fetch and unpack it if the cache lacks it."""
    if platform.machine() != "x86_64":
        raise CannotRunError(
            f"the virtual machines run on x86-64 Linux only, and this machine is "
            f"{platform.machine()}: measure it with --target local"
        )

    if argv := _users_qemu():
        # Before anything is fetched.
        _version(argv, os.environ["IOLAB_QEMU"])

    def finish(folder: Path) -> None:
        for unused in _UNUSED:
            remove(folder / unused)
        _version(Toolbox(folder).own_qemu_argv(), "")

    return Toolbox(unpacked("toolbox", "QEMU", finish))


def newest_fio() -> Toolbox:
    """Return the newest fio of Debian, newer than the guest image's, with all its libraries."""
    return Toolbox(unpacked("fio", "Debian's newest fio"))
