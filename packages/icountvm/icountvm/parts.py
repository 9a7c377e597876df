# SPDX-License-Identifier: MIT
"""Fetch exactly the packages of a lock: from this machine's mirror, else from a snapshot archive.

The lock has the SHA-256 of each package, so neither has to be trusted: no index is read, no
signature is checked and no version is compared.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, cast

from icountvm.deb import unpack
from icountvm.downloads import (
    AlteredFileError,
    FetchError,
    MissingFileError,
    ask_for,
    fetch_file,
    shown_uri,
)
from icountvm.mirror import Archive, NoMirrorError, mirror_of
from iolab_base.cached import make_folder
from iolab_base.errors import CannotRunError, UserError
from iolab_base.files import atomic_write, cache_dir, digest_of
from iolab_base.reading import read_regular

_log = logging.getLogger(__name__)

LOCK: Final = Path(__file__).with_name("parts.lock")
LOCK_VARIABLE: Final = "IOLAB_PARTS_LOCK"
_FORMAT: Final = "iolab-parts/1"
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9.+~:%_-]*"
_ROW: Final = re.compile(
    rf"({_WORD}) (debian|ubuntu) ({_WORD}) ({_WORD}) ((?:{_WORD}/)+{_WORD}\.deb) ([0-9a-f]{{64}}) "
    r"(\d{1,10})"
)


@dataclass(frozen=True)
class LockedPart:
    """One package: its file lies at ``path`` below the archive's address."""

    archive: Archive
    name: str
    version: str
    path: str
    sha256: str
    size: int


def lock_text(groups: Mapping[str, Iterable[LockedPart]]) -> str:
    """Return a lock: a line with the format and the SHA-256 of the rest, then one per package."""
    rows = "".join(
        f"{group} {p.archive} {p.name} {p.version} {p.path} {p.sha256} {p.size}\n"
        for group, parts in groups.items()
        for p in parts
    )
    return f"{_FORMAT} {hashlib.sha256(rows.encode()).hexdigest()}\n{rows}"


def read_lock(path: Path | None = None) -> dict[str, list[LockedPart]]:
    """Return the groups of a lock, by default of the one in use; UserError if it is damaged."""
    lock = path or Path(os.environ.get(LOCK_VARIABLE) or LOCK)
    try:
        head, _, rows = read_regular(lock).decode(errors="replace").partition("\n")
    except OSError as error:
        raise UserError(f"cannot read the lock of parts {lock}: {error.strerror}") from error
    name, _, digest = head.partition(" ")
    if name != _FORMAT:
        raise UserError(f"{lock} is not a lock of parts that this iolab reads ({_FORMAT})")
    found = [_ROW.fullmatch(line) for line in rows.splitlines()]
    if digest != hashlib.sha256(rows.encode()).hexdigest() or not all(found):
        raise UserError(f"the lock of parts {lock} is damaged: take it from its release again")
    groups: dict[str, list[LockedPart]] = {}
    for row in filter(None, found):
        part = LockedPart(cast(Archive, row[2]), row[3], row[4], row[5], row[6], int(row[7]))
        groups.setdefault(row[1], []).append(part)
    return groups


def locked_parts(group: str, lock: Path | None = None) -> list[LockedPart]:
    """Return the packages of a group of a lock; CannotRunError if it lacks the group."""
    parts = read_lock(lock).get(group)
    if parts is None:
        raise CannotRunError(f"the lock of parts has no {group}")
    return parts


def kept_lock() -> Path:
    """Return a copy of the lock in use that lies in the cache, for other machines."""
    text = lock_text(read_lock())
    path = cache_dir("locks", digest_of(text)[:16])
    if not path.exists():
        atomic_write(path, text)
    return path


def parts_digest(parts: Iterable[LockedPart]) -> str:
    """Return an identifier of these packages, for names of folders in the cache."""
    return hashlib.sha256("".join(part.sha256 for part in parts).encode()).hexdigest()[:16]


def fetch_parts(parts: Sequence[LockedPart], into: Path, title: str) -> list[Path]:
    """Fetch packages into a folder; CannotRunError if one is not available."""
    paths = [into / Path(part.path).name for part in parts]
    for part, path in zip(parts, paths, strict=True):
        fetch = partial(fetch_file, path=path, size=part.size, sha256=part.sha256)
        try:
            _from_first(part, fetch)
        except CannotRunError as error:
            raise CannotRunError(f"{title} cannot be fetched: {error}") from error
    return paths


def unpacked(
    group: str,
    title: str,
    finish: Callable[[Path], None] = lambda folder: None,
    *,
    lock: Path | None = None,
    place: str = "",
) -> Path:
    """Return a folder with the packages of a group; fetch and unpack them if the cache lacks it.

    `finish` completes a new folder. `lock` is another lock, `place` the folder in the cache that
    has this one, by default the group's. Raises as `fetch_parts`.
    """
    parts = locked_parts(group, lock)

    def make(folder: Path) -> None:
        _log.info("downloading %s from Debian", title)
        debs = fetch_parts(parts, folder / "debs", title)
        _log.info("unpacking %d packages", len(debs))
        for deb in debs:
            unpack(deb, folder)
        shutil.rmtree(folder / "debs")
        finish(folder)

    return make_folder(cache_dir(place or group, parts_digest(parts)), make)


def check_offered(part: LockedPart) -> None:
    """Check that an address offers a package, without fetching it; raises as `fetch_parts`."""
    _from_first(part, ask_for)


def _from_first(part: LockedPart, use: Callable[[str], None]) -> None:
    """Use the first address that offers a package."""
    problems = []
    gone = False
    for root in _roots(part.archive):
        try:
            return use(root + part.path)
        except MissingFileError:
            problems.append(f"{shown_uri(root)} does not have {part.name} {part.version}")
            gone = True
        except AlteredFileError:
            problems.append(f"{shown_uri(root)} has another {part.name} {part.version}")
            gone = True
        except FetchError as error:
            problems.append(str(error))
    way = (
        f"name a snapshot archive that has it in {_snapshot_variable(part.archive)}, or take what "
        "the mirror has now with `iolab --newest`, whose results carry other keys"
        if gone
        else "check the network and the mirror, then try again"
    )
    raise CannotRunError(f"{' and '.join(problems)}; {way}")


def _roots(archive: Archive) -> list[str]:
    """Return the addresses to fetch from: this machine's mirror, then a snapshot archive."""
    snapshot = os.environ.get(_snapshot_variable(archive))
    try:
        roots = [mirror_of(archive)]
    except NoMirrorError:
        if not snapshot:
            raise
        roots = []
    return [*roots, *([snapshot.rstrip("/") + "/"] if snapshot else [])]


def _snapshot_variable(archive: Archive) -> str:
    return f"IOLAB_SNAPSHOT_{archive.upper()}"
