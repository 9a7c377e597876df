# SPDX-License-Identifier: MIT
"""Atomic file writes, scratch folders, file locks, the cache folder and digests."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iolab.errors import IolabError
from iolab.writers import refuse_writers

__all__ = [
    "atomic_write",
    "cache_dir",
    "canonical_json",
    "digest_file",
    "digest_of",
    "locked",
    "scratch_dir",
]

_SCRATCH = ".work."
# A folder that is younger than this may not be locked yet.
_YOUNG_S = 60.0


def cache_dir(*below: str) -> Path:
    """Return iolab's cache folder, or a folder in it.

    Parameters
    ----------
    *below : str
        The parts of the folder's path in the cache.

    Returns
    -------
    Path
        The folder below ``$XDG_CACHE_HOME/iolab`` or ``~/.cache/iolab``; it may not exist.

    Raises
    ------
    UserError
        If another user could change what is in it: programs are run from there.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base, "iolab", *below)
    refuse_writers(folder)
    return folder


def atomic_write(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file under a temporary name, flush it to the disk, then rename it into place.

    Parameters
    ----------
    path : Path
        The file; folders above it are created.
    data : bytes or str
        The whole content; text is encoded as UTF-8.
    mode : int, optional
        Permission bits of the file.

    Raises
    ------
    IolabError
        If the file cannot be written. An old file at `path` is then unchanged.
    """
    payload = data.encode() if isinstance(data, str) else data
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)  # noqa: PTH101 - a name from mkstemp
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        raise IolabError(f"cannot write {path}: {error.strerror}") from error
    finally:
        # After Ctrl-C, too. A renamed file no longer has this name.
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


@contextmanager
def scratch_dir(parent: Path) -> Iterator[Path]:
    """Make a folder for the duration of a ``with`` block.

    The folder is removed at the end unless it was renamed. Scratch folders that killed processes
    left in `parent` are removed, too.

    Parameters
    ----------
    parent : Path
        Where the folder is made; created if missing.

    Yields
    ------
    Path
        The empty folder.

    Raises
    ------
    IolabError
        If the folder cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        name = tempfile.mkdtemp(dir=parent, prefix=_SCRATCH)
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise IolabError(f"cannot work in {parent}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)
        os.close(handle)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            # Its owner makes a folder first and locks it a moment later.
            if time.time() - folder.stat().st_mtime < _YOUNG_S:
                continue
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock for the duration of a ``with`` block.

    Parameters
    ----------
    path : Path
        The lock file; created if missing, never removed.
    on_wait : callable, optional
        Called once if another process holds the lock.

    Raises
    ------
    IolabError
        If the lock file cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise IolabError(f"cannot lock {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def canonical_json(value: Any) -> str:
    """Encode a value as JSON such that equal values have equal texts.

    Parameters
    ----------
    value : JSON value
        Anything that `json.dumps` takes, without NaN and infinity.

    Returns
    -------
    str
        JSON with sorted keys and without spaces.

    Raises
    ------
    ValueError
        If the value holds NaN or infinity.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest_of(value: Any) -> str:
    """Return the digest of a value.

    Parameters
    ----------
    value : JSON value
        As for `canonical_json`.

    Returns
    -------
    str
        SHA-256 of its `canonical_json`, in hex.
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_file(path: Path) -> str:
    """Return the digest of a file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    str
        SHA-256 of its bytes, in hex.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
