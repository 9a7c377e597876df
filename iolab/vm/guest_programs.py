# SPDX-License-Identifier: MIT
"""Run a program of the guest's image on this host: the same version, libraries and output."""

from __future__ import annotations

import stat
from pathlib import Path

from iolab.errors import IolabError
from iolab.files import atomic_write, cache_dir
from iolab.process import run
from iolab.vm.cached import make_folder
from iolab.vm.cpio import read_cpio
from iolab.vm.image import Image

__all__ = ["compress_trace", "trace_cmd"]

_LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
_LOADER = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
_TRACE_CMD = "usr/bin/trace-cmd"
_CONVERT_S = 300.0


def compress_trace(image: Image, trace: Path) -> None:
    """Replace a trace by what the guest's trace-cmd makes of it with zstd.

    Parameters
    ----------
    image : Image
        The image that the trace was recorded with.
    trace : Path
        The trace.dat.

    Raises
    ------
    CommandError
        If trace-cmd cannot convert the trace: then it is damaged, or the disk is full.
    IolabError
        If the program cannot be unpacked.
    """
    compressed = trace.with_name(f".{trace.name}.zst")
    convert = ["convert", "-i", str(trace), "-o", str(compressed), "--compression", "zstd"]
    # Without an environment: nothing of this host's may change the bytes.
    run([*trace_cmd(image), *convert], timeout_s=_CONVERT_S, env={})
    compressed.replace(trace)


def trace_cmd(image: Image) -> list[str]:
    """Return the command that runs the image's trace-cmd here; append its arguments.

    Parameters
    ----------
    image : Image
        The image. Its trace-cmd and libraries are unpacked into the cache once.

    Raises
    ------
    IolabError
        If they cannot be unpacked.
    """

    def make(folder: Path) -> None:
        for entry in read_cpio(image.path):
            wanted = entry.name == _TRACE_CMD or entry.name.startswith(_LIBRARIES)
            if not wanted or not isinstance(entry.data, bytes):
                continue
            path = folder / entry.name
            if stat.S_ISREG(entry.mode):
                atomic_write(path, entry.data, mode=stat.S_IMODE(entry.mode) | 0o500)
            elif stat.S_ISLNK(entry.mode):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(entry.data.decode())
        if not (folder / _LOADER).exists():
            raise IolabError(f"the image {image.path} has no {_LOADER}: remove its folder")

    root = make_folder(cache_dir("guest-programs", image.digest[:16]), make)
    libraries = ":".join(str(root / folder) for folder in _LIBRARIES)
    return [str(root / _LOADER), "--library-path", libraries, str(root / _TRACE_CMD)]
