# SPDX-License-Identifier: MIT
"""What is shipped to the measured machine: the agent, and programs with their libraries.

A program runs with its own loader and C library, not the guest's. The loader's file carries the
program's name, because the kernel names a task after the executed file: traces show
``stress-ng``, not ``ld-linux-x86-64``. Files that a program opens by name (dlopen) are not found.
"""

from __future__ import annotations

import hashlib
import io
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import iolab_agent
import iolab_base
from icountvm.cpio import CpioEntry
from icountvm.elf import MACHINE, Needs, needs
from icountvm.libraries import libraries_of
from icountvm.toolbox import newest_fio
from iolab_agent.plan import Plan, programs_of
from iolab_agent.plan_work import PROGRAMS, Program
from iolab_base import code
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import atomic_write, cache_dir, digest_file, digest_of

_AGENT = Path(iolab_agent.__file__).resolve().parent
_BASE = Path(iolab_base.__file__).resolve().parent
# Any Python must be able to read it, so that an old one prints what is wrong.
_MAIN = """import sys
if sys.version_info < (3, 9):
    sys.stderr.write("iolab-agent: Python 3.9 is needed, this is %d.%d\\n" % sys.version_info[:2])
    sys.exit(3)
from iolab_agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""

# The interpreters of the guest's own userland.
_INTERPRETERS: Final = {"python3": "/usr/bin/python3", "sh": "/bin/sh", "dash": "/bin/sh"}
# The fio of a question instead of that of the guest image.
NEWEST: Final = "newest"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_LARGEST_MIB: Final = 256
_DIGEST_BYTES: Final = 32


@cache
def agent_archive() -> bytes:
    """Return the agent with its imports as a zipapp, with the same bytes on every machine."""
    # Only code is shipped, without docstrings and comments: editing them changes neither the agent
    # nor the keys of the results, which depend on it.
    shared = [_BASE / "errors.py", _BASE / "process.py"]
    places = {"iolab_agent": sorted(_AGENT.glob("*.py")), "iolab_base": shared}
    texts = {f"{at}/{p.name}": p.read_text("utf-8") for at, paths in places.items() for p in paths}
    # Each program that measures a block needs it, and it takes half a second to make.
    makers = [Path(made).read_text("utf-8") for made in (__file__, code.__file__)]
    kept = cache_dir("agents") / digest_of([texts, makers])
    with suppress(OSError):
        whole = kept.read_bytes()
        if hashlib.sha256(whole[_DIGEST_BYTES:]).digest() == whole[:_DIGEST_BYTES]:
            return whole[_DIGEST_BYTES:]
    archive = _zipapp({name: code.code_of(text) for name, text in texts.items()})
    with suppress(IolabError):
        atomic_write(kept, hashlib.sha256(archive).digest() + archive)
    return archive


def _zipapp(members: dict[str, str]) -> bytes:
    # Not the package's own: each byte that the agent unpacks shifts the counted clock.
    members |= {"iolab_base/__init__.py": "", "__main__.py": _MAIN}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, members[name])
    return stream.getvalue()


@cache
def agent_digest() -> str:
    """Return the SHA-256 (hex) of the agent as it is shipped."""
    return hashlib.sha256(agent_archive()).hexdigest()


@dataclass(frozen=True)
class Shipped:
    """A program as the guest runs it."""

    # Precedes the program's own arguments.
    argv: tuple[str, ...]
    # SHA-256 of each file, by its path in the guest; the contents are in iolab's cache.
    files: dict[str, str]


def ship(path_or_name: str | Path) -> Shipped:
    """Find a program by path or name, and keep the files that it needs to start in the cache."""
    name = str(path_or_name)
    # A script runs with the guest's own python3 or sh; so do these names alone.
    if name in _INTERPRETERS:
        return Shipped((_INTERPRETERS[name],), {})
    path = _find(name)
    try:
        wants = needs(path)
    except IolabError as error:
        raise UserError(str(error)) from error
    if wants is None:
        return _script(path)
    what = f"the program {path}"
    if wants.machine != MACHINE:
        raise UserError(f"{what} is built for {wants.machine}, the guest is {MACHINE}")
    if not wants.loader:
        return _shipped(path.name, {f"bin/{path.name}": path}, [f"bin/{path.name}"])
    loader = Path(wants.loader)
    if not loader.is_file():
        raise UserError(f"{what} needs the loader {loader}, which is missing here")
    return _dynamic(path, wants, loader)


def _dynamic(path: Path, wants: Needs, loader: Path, folders: Sequence[Path] = ()) -> Shipped:
    """Ship a program with its loader and libraries, which are in `folders` if any are given."""
    files = {path.name: loader, f"bin/{path.name}": path}
    files |= {f"lib/{library}": at for library, at in libraries_of(path, wants, folders).items()}
    files.pop(f"lib/{Path(wants.loader).name}", None)
    return _shipped(path.name, files, [path.name, "--library-path", "lib", f"bin/{path.name}"])


def program(argv: Sequence[str], **different: Any) -> Program:
    """Return the program of a plan for a command line here; UserError if it cannot run there."""
    # `argv` begins with its path, or its name in PATH; `different` are further fields of `Program`.
    if isinstance(argv, str) or not argv:
        raise UserError("a program must be a list: its name or path, then its arguments")
    shipped = ship(argv[0])
    return Program([*shipped.argv, *map(str, argv[1:])], shipped.files, **different)


def fio_program(which: str | Path) -> Program:
    """Return a fio of this machine, or Debian's ``newest`` one, as a program of a plan."""
    if which != NEWEST:
        return program([str(which)])
    box = newest_fio()
    path = box.program("fio")
    # A part of Ceph's, which Debian's fio is linked with, lies in a folder of its own.
    folders = [*box.libraries, *(folder / "ceph" for folder in box.libraries)]
    shipped = _dynamic(path, needs(path) or Needs(MACHINE), box.loader(), folders)
    return Program([*shipped.argv], shipped.files)


def program_entries(plan: Plan) -> Iterator[CpioEntry]:
    """Yield the files of a plan's programs; CannotRunError if the cache lacks one."""
    files = {p: d for cell in plan.cells for one in programs_of(cell) for p, d in one.files.items()}
    for path, digest in sorted(files.items()):
        kept = _kept(digest)
        if not kept.is_file() or digest_file(kept) != digest:
            raise CannotRunError(
                f"{kept}, which the plan's program needs as {path}, is missing or damaged: make "
                "the plan again on this machine"
            )
        yield CpioEntry.file(path.lstrip("/"), kept, executable=True)


def _find(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        hint = "" if "/" in name else f": apt-get install {shlex.quote(name)}, or give its path"
        raise UserError(f"there is no program {name!r} here{hint}")
    path = Path(found).absolute()
    if not _NAME.fullmatch(path.name):
        raise UserError(
            f"the program's file name {path.name!r} has characters other than a-z0-9._+-"
        )
    return path


def _kept(digest: str) -> Path:
    return cache_dir("programs") / digest


def _shipped(name: str, files: dict[str, Path], argv: Sequence[str]) -> Shipped:
    """Keep files in the cache; `argv` names some of them relative to the program's folder."""
    digests: dict[str, str] = {}
    size = 0
    for where, path in sorted(files.items()):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        size += len(data)
        digests[where] = hashlib.sha256(data).hexdigest()
        if not _kept(digests[where]).is_file():
            atomic_write(_kept(digests[where]), data)
    if size > _LARGEST_MIB << 20:
        raise UserError(
            f"the program {name} has {size >> 20} MiB with its libraries; the guest keeps them in "
            f"memory, at most {_LARGEST_MIB}"
        )
    # Two builds of one program may be compared, so each gets its own folder.
    whole = hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()
    folder = f"{PROGRAMS}/{name}-{whole[:8]}"
    inside = {*files, "lib"}
    return Shipped(
        tuple(f"{folder}/{word}" if word in inside else word for word in argv),
        {f"{folder}/{where}": digest for where, digest in digests.items()},
    )


def _script(path: Path) -> Shipped:
    with path.open("rb") as stream:
        line = stream.readline(256).decode(errors="replace")
    words = line[2:].split() if line.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    interpreter = Path(words[0]).name if words else ""
    if interpreter not in _INTERPRETERS:
        ran_by = f"runs with {interpreter}" if interpreter else "is no program or script (#!)"
        raise UserError(f"{path} {ran_by}; the guest has python3 and sh")
    where = f"bin/{path.name}"
    shipped = _shipped(path.name, {where: path}, [where])
    return Shipped((_INTERPRETERS[interpreter], *words[1:], *shipped.argv), shipped.files)
