# SPDX-License-Identifier: MIT
"""Make the guest's userland: Debian's fio, trace-cmd, file system tools and Python.

The packages are unpacked without running their scripts. Each megabyte costs time at every boot, so
the archive contains only the wanted programs, the files they need to start, and a pruned,
byte-compiled Python library.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from icountvm.cpio import CpioEntry, write_cpio
from icountvm.deb import unpack
from icountvm.elf import closure
from icountvm.parts import fetch_parts, locked_parts, parts_digest
from iolab_base.cached import DAMAGED, make_folder
from iolab_base.errors import IolabError
from iolab_base.files import (
    atomic_write,
    cache_dir,
    canonical_json,
    digest_file,
    digest_of,
    remove,
)
from iolab_base.process import run

_log = logging.getLogger(__name__)

_PYTHON = "usr/bin/python3.11"
_STDLIB = "usr/lib/python3.11"
_FILES = (
    "bin/busybox",
    "bin/dd",
    "bin/kmod",
    "etc/mke2fs.conf",
    "sbin/dmsetup",
    "sbin/mke2fs",
    "sbin/mkfs.btrfs",
    "sbin/mkfs.f2fs",
    "sbin/mkfs.xfs",
    "usr/bin/fio",
    "usr/bin/python3",
    "usr/bin/trace-cmd",
    "usr/sbin/xfs_io",
    # The C library opens it with dlopen when a thread is cancelled: no program needs it by name.
    "lib/x86_64-linux-gnu/libgcc_s.so.1",
)
_LINKS = {
    "bin/sh": "busybox",
    "etc/mtab": "/proc/self/mounts",
    "sbin/mkfs.ext4": "mke2fs",
    **{
        f"sbin/{name}": "/bin/kmod"
        for name in ("depmod", "insmod", "lsmod", "modinfo", "modprobe", "rmmod")
    },
}
_FOLDERS = ("dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp")
_LIBRARY_FOLDERS = (
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/ceph",
    "lib64",
)
# Parts of the standard library that nothing on a measured machine imports, except `_KEPT`.
_DROPPED = (
    *("__phello__/*", "asyncio/*", "config-*", "curses/*", "dbm/*", "distutils/*", "ensurepip/*"),
    *("idlelib/*", "lib2to3/*", "pydoc_data/*", "sqlite3/*", "test/*", "tkinter/*"),
    *("turtledemo/*", "unittest/*", "venv/*", "wsgiref/*", "xmlrpc/*", "encodings/*"),
    *("antigravity.py", "doctest.py", "pydoc.py", "sitecustomize.py", "this.py", "turtle.py"),
    *("lib-dynload/_asyncio.*", "lib-dynload/_codecs_*", "lib-dynload/_crypt.*"),
    *("lib-dynload/_ctypes_test.*", "lib-dynload/_curses*", "lib-dynload/_dbm.*"),
    *("lib-dynload/_multibytecodec.*", "lib-dynload/_sqlite3.*", "lib-dynload/_ssl.*"),
    *("lib-dynload/_test*", "lib-dynload/_xx*", "lib-dynload/audioop.*", "lib-dynload/nis.*"),
    *("lib-dynload/ossaudiodev.*", "lib-dynload/readline.*", "lib-dynload/xx*"),
)
_KEPT = tuple(
    f"encodings/{name}.py"
    for name in (
        *("__init__", "aliases", "ascii", "cp437", "idna", "latin_1", "raw_unicode_escape"),
        *("unicode_escape", "utf_16", "utf_16_le", "utf_32", "utf_8", "utf_8_sig"),
    )
)
_RECIPE = {
    "files": _FILES,
    "links": _LINKS,
    "folders": _FOLDERS,
    "dropped": _DROPPED,
    "kept": _KEPT,
    "version": 1,
}


@dataclass(frozen=True)
class Image:
    """The guest's userland: its cpio archive and the SHA-256 of it."""

    path: Path
    digest: str


def _stdlib_files(root: Path) -> Iterator[str]:
    """Yield the wanted files of Python's library, relative to its folder."""
    base = root / _STDLIB
    for path in sorted(base.rglob("*")):
        name = path.relative_to(base).as_posix()
        kept = not any(fnmatch.fnmatchcase(name, pattern) for pattern in _DROPPED)
        if path.is_file() and path.suffix in {".py", ".so"} and (kept or name in _KEPT):
            yield name


def _compile_stdlib(root: Path, sources: Iterable[str], work: Path) -> None:
    """Byte-compile modules beside their sources with the guest's interpreter."""
    listing = work / "modules"
    listing.write_text("".join(f"{root / _STDLIB / name}\n" for name in sources))
    # A hash seed or a start-up file of the host would change the bytes.
    environment = {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONHOME": str(root / "usr")}
    libraries = ":".join(str(root / folder) for folder in _LIBRARY_FOLDERS)
    loader = root / "lib" / "x86_64-linux-gnu" / "ld-linux-x86-64.so.2"
    interpreter = [str(loader), "--library-path", libraries, str(root / _PYTHON), "-S", "-B"]
    compiler = ["-m", "compileall", "-q", "-b", "-f", "--invalidation-mode=unchecked-hash"]
    paths = ["-s", str(root), "-p", "/", "-i", str(listing)]
    run([*interpreter, *compiler, *paths], timeout_s=600, env=environment)


def _entries(root: Path, work: Path) -> Iterator[CpioEntry]:
    library = list(_stdlib_files(root))
    _compile_stdlib(root, (name for name in library if name.endswith(".py")), work)
    # Compiled modules without their sources: half the bytes.
    compiled = [f"{_STDLIB}/{re.sub(r'[.]py$', '.pyc', name)}" for name in library]
    wanted = closure(root, [*_FILES, *compiled], _LIBRARY_FOLDERS) - set(_LINKS)
    for name in wanted:
        path = root / name
        if path.is_symlink():
            yield CpioEntry.symlink(name, str(path.readlink()))
        else:
            yield CpioEntry.file(name, path, executable=bool(path.stat().st_mode & 0o100))
    yield from (CpioEntry.symlink(name, target) for name, target in _LINKS.items())
    yield from (CpioEntry.directory(name) for name in _FOLDERS)
    yield CpioEntry.char_device("dev/console", 5, 1)
    yield CpioEntry.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    yield CpioEntry.file("etc/group", b"root:x:0:\n")


def _described(folder: Path) -> Image | None:
    """Return the image of a cache folder, or None if it is incomplete."""
    path = folder / "image.cpio"
    try:
        description = json.loads((folder / "image.json").read_text())
        if path.stat().st_size == description["size"]:
            return Image(path, description["digest"])
    except DAMAGED:
        pass
    return None


def cached_image() -> Image | None:
    """Return the guest image if the cache has it; fetch nothing."""
    return _described(_folder())


def _folder() -> Path:
    key = digest_of(json.loads(canonical_json(_RECIPE)))[:16]
    return cache_dir("image", f"{key}-{parts_digest(locked_parts('image'))}")


def ensure_image() -> Image:
    """Return the guest image; make it if the cache lacks it."""
    parts = locked_parts("image")

    def make(folder: Path) -> None:
        _log.info("making the guest image")
        root = folder / "root"
        for deb in fetch_parts(parts, folder / "debs", "the guest image"):
            unpack(deb, root)
        path = folder / "image.cpio"
        write_cpio(path, _entries(root, folder))
        for leftover in set(folder.iterdir()) - {path}:
            remove(leftover)
        description = {"digest": digest_file(path), "size": path.stat().st_size}
        atomic_write(folder / "image.json", canonical_json(description))

    folder = make_folder(_folder(), make, good=lambda folder: _described(folder) is not None)
    image = _described(folder)
    if image is None:
        raise IolabError(f"the guest image in {folder} disappeared: try again")
    return image
