# SPDX-License-Identifier: MIT
"""File writes, scratch folders, file locks, the cache folder and digests."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from iolab_base.errors import IolabError, UserError
from iolab_base.writers import refuse_writers

# A name that begins so is locked by the process that uses it, or was left by a killed one.
_SCRATCH = ".work."
_SHORT = ".iolab."
# A folder's lock is a file beside it: NFS does not show other machines a folder's own lock.
_LOCK = ".lock"
# Errors that mean an impossible name; all others are the machine's.
_OF_A_NAME: Final = (
    *(errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.ENOTDIR, errno.ENXIO),
)
# The kernel's MAXSYMLINKS.
_MOST_LINKS: Final = 40
# Suffixes of the files of results, which no output has.
_RESULTS: Final = (".parquet", ".json", ".json.gz", ".dat")


def cache_dir(*below: str) -> Path:
    """Return ``$XDG_CACHE_HOME/iolab`` or ``~/.cache/iolab``, or a folder in it; it may not exist.

    Raises UserError if another user could change its contents: programs are run from there.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG Base Directory Specification has a relative path ignored.
    folder = (base if base.is_absolute() else Path.home() / ".cache").joinpath("iolab", *below)
    refuse_writers(folder)
    return folder


def atomic_write(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file under a temporary name, flush it to the disk, then rename it into place.

    Folders above it are created. It replaces anything of that name, even a link or a device: use
    `write_output` for names that the user chose. Raises UserError for an impossible name,
    IolabError if it cannot be written; an old file is then unchanged.
    """
    payload = data.encode() if isinstance(data, str) else data
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = _owned(lambda: tempfile.mkstemp(dir=path.parent, prefix=_SCRATCH))
        with os.fdopen(handle, "wb") as stream:
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(temporary, mode)  # noqa: PTH101 - a name from mkstemp
            os.replace(temporary, path)  # noqa: PTH105
    except (OSError, ValueError) as error:
        raise _not_written(path, error) from error
    finally:
        # After Ctrl-C, too. A renamed file no longer has this name.
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _not_written(path: Path, error: OSError | ValueError) -> IolabError:
    """Return the error that says why a file was not written."""
    if isinstance(error, ValueError):
        return UserError(f"cannot write {str(path)!r}: {error}")
    kind = UserError if error.errno in _OF_A_NAME else IolabError
    return kind(f"cannot write {path}: {error.strerror}")


def write_output(path: Path, data: bytes | str) -> None:
    """Write an output whose name the user chose.

    A file is written as by `atomic_write`, with the permissions that this user gave it. A link
    stays: the file behind it is written. A device, a pipe or a descriptor of this process, such as
    ``/dev/stdout``, is written into. Raises UserError if it is a folder or a disk, no file can have
    this name, or another user could redirect it; IolabError if it cannot be written.
    """
    check_outputs([path])
    payload = data.encode() if isinstance(data, str) else data
    try:
        place = _behind_links(path)
        if place.parent == _descriptors():
            handle = os.dup(int(place.name))
        elif place.exists() and not place.is_file():
            _refuse_planted(place)
            handle = os.open(place, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        else:
            atomic_write(place, payload, mode=_mode(place))
            return
        with os.fdopen(handle, "wb") as stream:
            stream.write(payload)
    except (OSError, ValueError) as error:
        raise _not_written(path, error) from error


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path] = ()) -> None:
    """Check that outputs can be written without loss of an input or of each other.

    Inputs may be folders of results: their tables, documents and traces count. Raises UserError if
    an output is a folder, a disk, an input under any name, or named twice.
    """
    inputs, places = list(inputs), set[str]()
    for path in outputs:
        status = None
        try:
            place = os.path.realpath(path)
            with suppress(FileNotFoundError):
                status = path.stat()
        except (OSError, ValueError) as error:
            raise _not_written(path, error) from error
        if status is not None:
            if stat.S_ISDIR(status.st_mode) or stat.S_ISBLK(status.st_mode):
                what = "folder" if stat.S_ISDIR(status.st_mode) else "disk"
                raise UserError(f"{path} is a {what}: name a file")
            if not stat.S_ISREG(status.st_mode):
                continue
            if any(_is_of(status, file) for file in inputs):
                raise UserError(f"{path} is an input of this command: name another file")
        if place in places:
            raise UserError(f"{path} is named for two outputs: name two files")
        places.add(place)


def _is_of(status: os.stat_result, place: Path) -> bool:
    """Return whether a file is an input, or one of the results in a folder."""
    if not place.is_dir():
        return place.exists() and os.path.samestat(place.stat(), status)
    for folder, _, names in os.walk(place):
        for name in names:
            file = os.path.join(folder, name)  # noqa: PTH118 - a store has many files
            with suppress(OSError):
                if name.endswith(_RESULTS) and os.path.samestat(os.stat(file), status):  # noqa: PTH116
                    return True
    return False


def _behind_links(path: Path) -> Path:
    """Return a path with all its links followed."""
    place = Path.cwd() / path
    for _ in range(_MOST_LINKS):
        parts = (*reversed(place.parents), place)
        link = next((p for p in parts if p.is_symlink() and p.parent != _descriptors()), None)
        if link is None:
            return place
        _refuse_planted(link)
        place = link.parent / link.readlink() / place.relative_to(link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _descriptors() -> Path:
    """Return the folder of this process's descriptors, whose links are not paths."""
    return Path(f"/proc/{os.getpid()}/fd")


def _refuse_planted(place: Path) -> None:
    """Refuse another user's file in a shared folder, as sysctl fs.protected_* do."""
    folder, owner = place.parent.stat(), place.lstat().st_uid
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    if shared and owner not in (os.geteuid(), folder.st_uid):
        raise UserError(
            f"{place} belongs to user {owner}, in a folder that all can write: name another file"
        )


def _mode(place: Path) -> int:
    """Return the permissions that a file of this user has, or a new one gets."""
    if place.exists() and (status := place.stat()).st_uid == os.geteuid():
        return status.st_mode & 0o777
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _owned(make: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Make a temporary file or folder, and lock it: other processes remove unlocked ones."""
    while True:
        handle, name = make()
        try:
            # On a file system without locks, nobody else can take one.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if os.path.lexists(name):
                return handle, name
        except BaseException:
            os.close(handle)
            raise
        # Another process took it for abandoned, in the moment before it was locked.
        os.close(handle)


@contextmanager
def scratch_dir(parent: Path, prefix: str = _SCRATCH) -> Iterator[Path]:
    """Make an empty folder for the duration of a ``with`` block.

    It is removed at the end unless it was renamed, and so are scratch folders and temporary files
    that killed processes left in `parent`: anything of this user that begins with `prefix` may go.
    Raises IolabError if it cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(parent, prefix)
        handle, lock = _owned(lambda: tempfile.mkstemp(_LOCK, prefix, parent))
    except OSError as error:
        raise IolabError(f"cannot work in {parent}: {error.strerror}") from error
    folder = Path(lock.removesuffix(_LOCK))
    try:
        with _made_folder(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        Path(lock).unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def _made_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and lock it as well: an older iolab recognises folders in use by that."""
    try:
        folder.mkdir(0o700)
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise IolabError(f"cannot work in {folder.parent}: {error.strerror}") from error
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def short_dir() -> AbstractContextManager[Path]:
    """Make a folder as `scratch_dir` does, with a path that is short enough for a socket."""
    return scratch_dir(Path(tempfile.gettempdir()), _SHORT)


def remove_short_dirs() -> None:
    """Remove the folders of `short_dir` that killed processes of this user left."""
    remove_abandoned(Path(tempfile.gettempdir()), _SHORT)


def remove(path: Path) -> None:
    """Remove a file or a link, or a folder with its contents; do nothing if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_abandoned(parent: Path, prefix: str = _SCRATCH) -> None:
    """Remove the scratch folders and temporary files that killed processes of this user left."""
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError), ExitStack() as stack:
            if left.is_symlink() or left.stat().st_uid != os.geteuid():
                continue
            if not left.is_dir():
                # A folder goes before its lock.
                if not left.name.endswith(_LOCK) or not _folder_of(left).exists():
                    _seize(left, os.O_RDWR, stack)
                    left.unlink()
                continue
            _seize(left, os.O_RDONLY, stack)
            lock = left.with_name(left.name + _LOCK)
            with suppress(FileNotFoundError):
                _seize(lock, os.O_RDWR, stack)
            shutil.rmtree(left, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _folder_of(lock: Path) -> Path:
    return lock.with_name(lock.name.removesuffix(_LOCK))


def _seize(path: Path, mode: int, stack: ExitStack) -> None:
    """Lock an unlocked file or folder until the stack is closed, else raise OSError."""
    handle = os.open(path, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    stack.callback(os.close, handle)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(
    path: Path, on_wait: Callable[[], None] = lambda: None, *, shared: bool = False
) -> Iterator[None]:
    """Hold a lock on a file, created if missing, for the duration of a ``with`` block.

    Any number of processes can hold a `shared` lock, or one an exclusive lock, and the file may be
    removed under that. `on_wait` is called once if another process has the lock; it may raise, so
    as not to wait. Raises IolabError if the file cannot be opened, or its file system has no locks.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # flock(2) on NFS takes an exclusive lock only on what is open for writing.
            mode = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(path, mode, 0o644)
        except OSError as error:
            raise IolabError(f"cannot lock {path}: {error.strerror}") from error
        try:
            _take(handle, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, on_wait)
            # Its last holder may have removed it: then another process can lock a new one.
            if _is_at(path, handle):
                yield
                return
        finally:
            os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(handle))
    return False


def _take(handle: int, path: Path, kind: int, on_wait: Callable[[], None]) -> None:
    try:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, kind)
    except OSError as error:
        raise IolabError(
            f"cannot lock {path}: {error.strerror}; use a folder on a file system with locks "
            "(NFS: version 4, not nolock)"
        ) from error


def check_free(folder: Path, needed: int, what: str) -> None:
    """Make a folder; IolabError if its disk has fewer free bytes than `what`, its words, needs."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise IolabError(f"{what} needs {needed >> 20} MiB in {folder}, {free >> 20} MiB are free")


def finite(value: Any) -> Any:
    """Return a value for JSON, which has no number that is not finite: None in its place."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def canonical_json(value: Any) -> str:
    """Encode a value as JSON such that equal values have equal texts; ValueError for NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest_of(value: Any) -> str:
    """Return the SHA-256 (hex) of a value's `canonical_json`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_file(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
