# SPDX-License-Identifier: MIT
"""Files that are whole or absent, and the folders iolab keeps."""

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
_NEWBORN_S = 60.0


def cache_dir() -> Path:
    """Return iolab's folder under the XDG cache directory (``$XDG_CACHE_HOME/iolab``)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "iolab"


def atomic_write(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file under a temporary name, flush it to the disk, then rename it into place.

    Errors: IolabError naming the path if the disk is full or the folder may not be written; the
    old file, if any, is then still whole.
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
        # Also after Ctrl-C; once renamed, it is not there any more.
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


@contextmanager
def scratch_dir(parent: Path) -> Iterator[Path]:
    """Give a new folder inside `parent` that is gone afterwards, unless it was renamed away.

    What a killed process left there in the same way is removed, too.

    Errors: IolabError if the folder cannot be made.
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
            # A newborn folder is not locked yet for a moment.
            if time.time() - folder.stat().st_mtime < _NEWBORN_S:
                continue
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock on `path` (created if missing) among all processes that ask for it.

    `on_wait` is called once if another process holds it.

    Errors: IolabError if the file cannot be made.
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
    """Return JSON that is the same text for equal values: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest_of(value: Any) -> str:
    """Return the SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_file(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
