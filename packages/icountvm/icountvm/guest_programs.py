# SPDX-License-Identifier: MIT
"""Run a program of the guest's image on this host: the same version, libraries and output."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from icountvm.cpio import read_cpio
from icountvm.image import Image
from iolab_base.cached import make_folder
from iolab_base.errors import IolabError
from iolab_base.process import run

_PROGRAMS = {"fio": "usr/bin/fio", "trace-cmd": "usr/bin/trace-cmd"}
_LOADER = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
_LIBRARY = re.compile(r"(usr/)?lib(64)?/.*\.so(\.[0-9.]+)?")
_CONVERT_S = 300.0


def compress_trace(image: Image, trace: Path) -> None:
    """Recompress a trace with the guest's trace-cmd and zstd.

    Raises CommandError if the trace is damaged or the disk is full.
    """
    compressed = trace.with_name(f".{trace.name}.zst")
    convert = ["convert", "-i", str(trace), "-o", str(compressed), "--compression", "zstd"]
    # Without an environment: nothing on this host may change the bytes.
    run([*guest_program(image, "trace-cmd"), *convert], timeout_s=_CONVERT_S, env={})
    compressed.replace(trace)


def guest_program(image: Image, name: str) -> list[str]:
    """Return the command that runs the guest's "fio" or "trace-cmd" on this machine.

    It starts with the image's own loader; append the program's arguments. The image's programs and
    libraries are unpacked beside it once.
    """

    def make(folder: Path) -> None:
        for entry in read_cpio(image.path):
            if entry.name not in _PROGRAMS.values() and not _LIBRARY.fullmatch(entry.name):
                continue
            path = folder / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = entry.data if isinstance(entry.data, bytes) else entry.data.read_bytes()
            if stat.S_ISLNK(entry.mode):
                path.symlink_to(data.decode())
            else:
                path.write_bytes(data)
                path.chmod(0o755)

    root = make_folder(image.path.parent / "programs", make)
    program = root / _PROGRAMS[name]
    if not program.exists() or not (root / _LOADER).exists():
        raise IolabError(f"the guest image {image.path} lacks {name}: remove its folder")
    folders = sorted({str(p.parent) for p in root.rglob("*.so*")})
    return [str(root / _LOADER), "--library-path", ":".join(folders), str(program)]
