# SPDX-License-Identifier: MIT
"""Parts of a virtual machine (QEMU, image, kernels, programs) that a cluster's workers need.

A part is a folder or a file of the cache, named by the SHA-256 of a tar of it. A worker that has
other bytes, or none, gets the client's beside its own: nothing in its cache is replaced.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, Protocol

from iolab_base.cached import make_folder
from iolab_base.errors import IolabError
from iolab_base.files import cache_dir, digest_of, locked

# A booted kernel's facts are not part of it.
_LEFT_OUT: Final = {"facts.json"}
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Part:
    """A part by its content: its path below the cache, and the digest and size of its tar."""

    place: str
    digest: str
    size: int


@dataclass(frozen=True)
class Settled:
    """What a worker has of some parts, and those that are missing.

    `root` is the ``XDG_CACHE_HOME`` for programs that use them; "" while some are missing.
    """

    root: str
    missing: tuple[Part, ...] = ()


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


class _Digest:
    """A file that only hashes and counts what is written to it."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self.size += len(data)
        return len(data)


def write_tar(path: Path, sink: _Sink) -> None:
    """Write a folder or a file as a tar with the same bytes on every machine."""
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        folder = path.is_dir()
        found = sorted(p for p in path.rglob("*") if p.name not in _LEFT_OUT) if folder else [path]
        base = path if folder else path.parent
        for one in found:
            info = tarfile.TarInfo(one.relative_to(base).as_posix())
            status = one.lstat()
            info.mode = 0o755 if status.st_mode & 0o100 else 0o644
            if stat.S_ISLNK(status.st_mode):
                info.type, info.linkname = tarfile.SYMTYPE, str(one.readlink())
                tar.addfile(info)
            elif stat.S_ISDIR(status.st_mode):
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif stat.S_ISREG(status.st_mode):
                info.size = status.st_size
                with one.open("rb") as stream:
                    tar.addfile(info, stream)


def part_of(place: str) -> Part:
    """Return the part at a path below this machine's cache."""
    digest = _Digest()
    write_tar(cache_dir(place), digest)
    return Part(place, digest.sha256.hexdigest(), digest.size)


def _shipped(part: Part) -> Path:
    return cache_dir("cluster", "parts", part.digest)


def _here(part: Part) -> Path | None:
    """Return where this machine has a part: as shipped, or in its own cache."""
    shipped, own = _shipped(part), cache_dir(part.place)
    if shipped.is_dir():
        # A file is unpacked under its own name.
        file = shipped / PurePosixPath(part.place).name
        return file if file.is_file() and len(list(shipped.iterdir())) == 1 else shipped
    try:
        return own if own.exists() and part_of(part.place) == part else None
    except OSError:
        return None


def settle(parts: Iterable[Part]) -> Settled:
    """Link parts into a cache folder of their own, if this machine has all of them."""
    wanted = tuple(parts)
    found = {part: _here(part) for part in wanted}
    if missing := tuple(part for part, path in found.items() if path is None):
        return Settled("", missing)
    name = digest_of(sorted([part.place, part.digest] for part in wanted))[:16]
    root = cache_dir("cluster", "roots", name)
    try:
        with locked(root.parent / f".{name}.lock"):
            for part, path in found.items():
                _link(root / "iolab" / part.place, path)
    except OSError as error:
        raise IolabError(f"cannot make {root}: {error.strerror}") from error
    return Settled(str(root))


def _link(link: Path, target: Path | None) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(str(target))


def receive(part: Part, archive: Path) -> None:
    """Unpack a part from its tar; raise IolabError if the tar is another or the disk is full."""
    with archive.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != part.digest:
        raise IolabError(f"{part.place} arrived damaged: its SHA-256 differs")

    def make(folder: Path) -> None:
        with archive.open("rb") as stream:
            _unpack(stream, folder)

    make_folder(_shipped(part), make)


def _unpack(stream: IO[bytes], folder: Path) -> None:
    # Not tarfile's own extraction: its filters refuse absolute links, and are newer than 3.11.0.
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts:
                raise IolabError(f"a part holds {member.name[:100]!r}, which is refused")
            path = folder / name
            if member.isdir():
                path.mkdir()
            elif member.issym():
                path.symlink_to(member.linkname)
            elif (source := tar.extractfile(member)) is not None:
                # "x": never through a link that stands there.
                with source, path.open("xb") as whole:
                    shutil.copyfileobj(source, whole, _CHUNK)
                path.chmod(member.mode)
