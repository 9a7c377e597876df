# SPDX-License-Identifier: MIT
"""Files that are whole or absent, and the folders iolab keeps."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Give a new folder inside `parent` that is gone afterwards, unless it was renamed away."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        work = tempfile.TemporaryDirectory(dir=parent, prefix=".work.", ignore_cleanup_errors=True)
    except OSError as error:
        raise IolabError(f"cannot work in {parent}: {error.strerror}") from error
    with work as name:
        yield Path(name)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` (created if missing) among all processes that ask for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise IolabError(f"cannot lock {path}: {error.strerror}") from error
    try:
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
