# SPDX-License-Identifier: MIT
"""What tests need of the machine: its own programs, else Debian's, unpacked; else they are skipped.

A test is skipped only through this module, and always for want of one thing with a name: the run
ends with a line that counts them (`tests.conftest`).
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

import pytest
from _pytest.outcomes import Skipped

from icountvm import parts
from icountvm.catalogue import PartSource
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.files import atomic_write

# `nox -s lock` writes it.
LOCK: Final = Path(__file__).with_name("parts.lock")
_PACKAGES: Final = {
    **dict.fromkeys(("readelf", "objcopy"), "binutils"),
    **{name: name for name in ("cpio", "dmsetup", "fio", "gpg", "gpg-agent", "make", "trace-cmd")},
    **dict.fromkeys(("filefrag", "mkfs.ext4"), "e2fsprogs"),
    "gpg-connect-agent": "gpgconf",
    **dict.fromkeys(("losetup", "mount", "swapoff", "swapon", "umount"), "mount"),
    **dict.fromkeys(("ssh", "ssh-add", "ssh-agent", "ssh-keygen"), "openssh-client"),
    "sshd": "openssh-server",
    "xz": "xz-utils",
}
SOURCES: Final = {
    package: PartSource("debian", ("bookworm",), (package, *more))
    for package, *more in (
        *((name,) for name in dict.fromkeys(_PACKAGES.values()) if name != "openssh-server"),
        ("mmdebstrap", "perl"),
        ("openssh-server", "libnss-wrapper"),
    )
}
_NOUNS: Final = {"cc": "a C compiler", "chromium": "a browser", "gcc": "a C compiler"}
_OTHERS: Final[dict[str, Callable[[], bool]]] = {
    "root": lambda: os.geteuid() == 0,
    "zram": Path("/sys/class/zram-control/hot_add").exists,
}
# sshd wants a user of this name, which a machine has that installed it.
_SSHD_USER: Final = "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
_PLACES: Final = ("bin", "sbin", "usr/bin", "usr/sbin")
_SBIN: Final = "/usr/local/sbin:/usr/sbin:/sbin"


class LackError(Skipped):
    """A test cannot run here; `noun` is what it lacks."""

    # As pytest's own exceptions: its lines of skipped tests are shorter.
    __module__ = "builtins"

    def __init__(self, noun: str, detail: str = "") -> None:
        # pytest names the test, not this file.
        text = f"for want of {noun}" + (f": {detail}" if detail else "")
        super().__init__(text, _use_item_location=True)
        self.noun = noun


def lack(noun: str, detail: str = "") -> NoReturn:
    """Skip the running test for want of something."""
    raise LackError(noun, detail)


@contextmanager
def wants(noun: str, errors: type[Exception] = CannotRunError) -> Iterator[None]:
    """Skip the running test if what it wants cannot be had, which an error says."""
    try:
        yield
    except errors as error:
        lack(noun, str(error))


def needs(*names: str) -> pytest.MarkDecorator:
    """Mark tests that need programs on PATH, ``"root"`` or ``"zram"``."""
    return pytest.mark.needs(*names)


def need(*names: str) -> None:
    """Skip the running test without what `needs` names."""
    for name in names:
        if name not in _OTHERS:
            program(name)
        elif not _OTHERS[name]():
            lack(name)


def program(name: str) -> Path:
    """Return a program, and have it on PATH from now on; skip the running test without it."""
    path = f"{os.environ['PATH']}:{_SBIN}"
    if found := shutil.which(name, path=path):
        return Path(found)
    if name not in _PACKAGES:
        lack(_NOUNS.get(name, name))
    with wants(name, IolabError):
        wrapper = _wrapper(name)
    os.environ["PATH"] += f":{wrapper.parent}"
    return wrapper


def summary(lacks: Iterable[str]) -> str:
    """Return one line that counts what tests were skipped for want of."""
    counted = Counter(lacks)
    what = ", ".join(f"{noun} ({n})" for noun, n in sorted(counted.items(), key=lambda x: -x[1]))
    return f"skipped {counted.total()} for want of: {what}"


def unpacked(package: str) -> Path:
    """Return the folder of a package with all that it depends on, down to the C library."""
    return parts.unpacked(package, package, lock=LOCK, place=f"programs-of-tests/{package}")


def _wrapper(name: str) -> Path:
    """Return a script that runs an unpacked program; the kernel names the task as the program."""
    environment = ""
    root = unpacked(_PACKAGES[name])
    folder = root / "wrappers"
    libraries = sorted({str(p.parent) for p in root.rglob("*.so*") if ".so." in f"{p.name}."})
    found = next(path for place in _PLACES if (path := root / place / name).exists())
    rest = ["--library-path", ":".join(libraries), str(found)]
    if name == "sshd":
        (library,) = root.glob("usr/lib/x86_64-linux-gnu/libnss_wrapper.so")
        rest = ["--preload", str(library), *rest]
        users = folder / "passwd"
        atomic_write(users, Path("/etc/passwd").read_bytes() + _SSHD_USER.encode())
        environment = f"NSS_WRAPPER_PASSWD={users} NSS_WRAPPER_GROUP=/etc/group "
    named = folder / "loaders" / name
    named.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        named.symlink_to(root / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    # Programs start themselves anew, and know what they are, by the name that they were called by.
    command = f'{environment}exec {named} --argv0 "$0" {shlex.join(rest)} "$@"'
    wrapper = folder / name
    atomic_write(wrapper, f"#!/bin/sh\n{command}\n", mode=0o755)
    return wrapper
