# SPDX-License-Identifier: MIT
"""What was changed on the measured machine, written down before it is changed.

Every line of the journal is one undo, flushed to the disk before the change is made, so that a
run that was killed at any moment can be undone from the journal alone. Undoing goes backwards,
and undoing what was never done is harmless.

A setting, a mount, a module or a cgroup is gone after a reboot, and writing an old value into
another boot would be a change of its own. So a journal begins with the boot that it is of; of an
earlier boot only what lasts on a disk is undone. What lasts belongs into a journal on a disk, the
rest into one in memory: fsync costs nothing there and disturbs no disk that is measured.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable

from iolab.agent.named import identity_of, wipe
from iolab.agent.trusted import open_private
from iolab.errors import IolabError
from iolab.process import run

__all__ = [
    "FILES",
    "JOURNALS",
    "AtWorkError",
    "Journal",
    "alone",
    "pending",
    "restore",
    "restore_all",
]

# In the order in which they are undone: a cell's settings, its files on a disk, the block's.
FILES = Path("/var/lib/iolab/files.journal")
JOURNALS = (Path("/run/iolab/cell.journal"), FILES, Path("/run/iolab/block.journal"))
_LOCK = Path("/run/iolab/journal.lock")
_WORK = ("fio", "dd")
_TRIES = 100
_TRY_AGAIN_S = 0.05
# Several grace periods, on a core that is idle.
_RCU_S = 0.2


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class AtWorkError(IolabError):
    """Another run, or a restore, is at work on this machine."""


@contextmanager
def alone() -> Iterator[None]:
    """Be the only one that changes this machine, or undoes what was changed.

    Errors: AtWorkError naming the process that is at it; those of `open_private`.
    """
    try:
        handle = open_private(_LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise IolabError(f"cannot lock {_LOCK}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.pread(handle, 20, 0).decode(errors="replace").strip()
            words = f"iolab is at work on this machine already (process {pid})"
            raise AtWorkError(words) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


class Journal:
    """An append-only file of undos, all of one boot."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._handle = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise IolabError(f"cannot open the journal {path}: {error.strerror}") from error

    def note(self, undo: str, path: str, value: str = "") -> None:
        """Write down how to undo the change that comes next; ``undo`` is a kind of `restore`."""
        if not os.fstat(self._handle).st_size:
            self._append({"boot": _boot()})
        self._append({"undo": undo, "path": path, "value": value})

    def _append(self, entry: dict[str, str]) -> None:
        line = (json.dumps(entry) + "\n").encode()
        try:
            # A disk that is nearly full takes a part of the line, and no error is raised.
            while line:
                line = line[os.write(self._handle, line) :]
            os.fsync(self._handle)
        except OSError as error:
            raise IolabError(f"cannot write the journal {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; its undos stay until `restore` has done them."""
        os.close(self._handle)


def _write(path: Path, value: str) -> None:
    if path.exists():
        path.write_text(value)


def _users(folder: Path) -> list[int]:
    """Return the processes that have something open below `folder`."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            links = [process / "cwd", *(process / "fd").iterdir()]
            for link in links:
                with suppress(OSError):
                    target = str(link.readlink())
                    if target == str(folder) or target.startswith(f"{folder}/"):
                        found.append(int(process.name))
                        break
    return found


def _comm(process: Path) -> str:
    with suppress(OSError):
        return (process / "comm").read_text(errors="replace").strip()
    return ""


def _is_work(pid: int) -> bool:
    return _comm(Path(f"/proc/{pid}")) in _WORK


def _kill_until_none(find: Callable[[], list[int]]) -> bool:
    """Kill the processes that `find` finds until it finds none; return whether it came to that."""
    for _ in range(_TRIES):
        found = find()
        if not found:
            return True
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        time.sleep(_TRY_AGAIN_S)
    return False


def _kill_users(folder: Path, *, strangers: bool = True) -> None:
    """Kill whoever has something open below `folder` until nobody has.

    Not `strangers`: only what does a cell's work. A real machine's folders and disks are looked
    into by others, too: a backup, udev, a person.
    """
    _kill_until_none(lambda: [pid for pid in _users(folder) if strangers or _is_work(pid)])


def _umount(path: Path, value: str) -> None:
    mounts = Path("/proc/self/mounts").read_text(errors="replace")
    if not any(line.split()[1] == str(path) for line in mounts.splitlines()):
        return
    # fio's jobs outlive a fio that was killed: they have sessions of their own.
    if value == "users":
        _kill_users(path)
    run(["umount", path], timeout_s=60)


def _rmdir(path: Path, value: str) -> None:
    with suppress(FileNotFoundError):
        path.rmdir()


def _cgroup(path: Path, value: str) -> None:
    # systemd may remove it in the midst of this.
    with suppress(FileNotFoundError):
        # A killed process stays in its cgroup until it has ended.
        _kill_until_none(lambda: [int(x) for x in (path / "cgroup.procs").read_text().split()])
        path.rmdir()


def _scope(path: Path, value: str) -> None:
    # systemd may still be about to make it: it knows its name before the folder is there.
    run(["systemctl", "--quiet", "stop", value], timeout_s=60, check=False)
    _cgroup(path, value)


def _null_blk(path: Path, value: str) -> None:
    if path.is_dir():
        (path / "power").write_text("0")
        path.rmdir()


def _loaded(path: Path) -> bool:
    """Tell whether a module is there, once nobody is about to load one."""
    for _ in range(_TRIES):
        # A modprobe that was killed first ends what it has asked the kernel for.
        if not any(_comm(p) == "modprobe" for p in Path("/proc").glob("[0-9]*")):
            break
        time.sleep(_TRY_AGAIN_S)
    return path.is_dir()


def _module(path: Path, value: str) -> None:
    if not _loaded(path):
        return
    used = any(path.parent.glob(f"*/holders/{path.name}"))
    result = run(["rmmod", value], timeout_s=60, check=False)
    if path.is_dir():
        raise IolabError(result.stderr.strip() or "the module is still there")
    if used:
        # What the module left to RCU may be in one that it used, which may not wait for it before
        # it goes: configfs after null_blk then takes the kernel with it.
        time.sleep(_RCU_S)


def _dependencies(path: Path, value: str) -> None:
    left = [path / name for name in value.split()]
    while left:
        # Each in its turn, and only if nobody else has come to use it.
        free = [m for m in left if not _loaded(m) or (m / "refcnt").read_text().strip() == "0"]
        if not free:
            break
        for module in free:
            with suppress(IolabError):
                _module(module, module.name)
            left.remove(module)


def _loop(path: Path, value: str) -> None:
    if (Path("/sys/block") / path.name / "loop/backing_file").exists():
        run(["losetup", "-d", path], timeout_s=60)


def _zram(path: Path, value: str) -> None:
    size = Path("/sys/block") / path.name / "disksize"
    # One that has another size is somebody else's; ours has none before it gets its own.
    if not size.exists() or size.read_text().strip() not in ("0", value):
        return
    # fio's jobs outlive a fio that was killed: they have sessions of their own.
    _kill_users(path, strangers=False)
    number = path.name[len("zram") :]
    for left in reversed(range(_TRIES)):
        try:
            Path("/sys/class/zram-control/hot_remove").write_text(number)
            return
        except OSError as error:
            # udev looks into a device that was just unmounted.
            if error.errno != errno.EBUSY or not left:
                raise
        time.sleep(_TRY_AGAIN_S)


def _tracing(path: Path, value: str) -> None:
    if not path.is_dir():
        return
    # trace-cmd's readers outlive a trace-cmd that was killed, and hold its instance.
    _kill_users(path)
    path.rmdir()


def _kprobe(path: Path, value: str) -> None:
    if path.exists() and any(f":{value} " in line for line in path.read_text().splitlines()):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, f"-:{value}\n".encode())
        finally:
            os.close(handle)


def _nice(path: Path, value: str) -> None:
    old, began = value.split()
    with suppress(FileNotFoundError, ProcessLookupError):
        # Another process may have got the number since: it began at another time.
        if (path / "stat").read_text(errors="replace").rpartition(")")[2].split()[19] == began:
            os.setpriority(os.PRIO_PROCESS, int(path.name), int(old))


def _fio(path: Path, value: str) -> None:
    # Its jobs have sessions of their own and outlive a fio that was killed; on a device without a
    # file system, in no cgroup, nothing else finds them.
    report = f"--output={path}".encode()

    def find() -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if report in (process / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    if not _kill_until_none(find):
        raise IolabError("its jobs do not end")


def _unlink(path: Path, value: str) -> None:
    path.unlink(missing_ok=True)


def _tree(path: Path, value: str) -> None:
    # Not through a link, and of no other kind than what was made.
    if not path.exists() or not stat.S_ISDIR(path.lstat().st_mode):
        return
    _kill_users(path, strangers=False)
    shutil.rmtree(path)


def _wipe(path: Path, value: str) -> None:
    # fio's jobs outlive a fio that was killed: they have sessions of their own.
    _kill_users(path, strangers=False)
    # Another disk may have got the name since.
    if path.exists() and identity_of(path) == value:
        wipe(path)


_UNDO: dict[str, Callable[[Path, str], None]] = {
    "cgroup": _cgroup,
    "dependencies": _dependencies,
    "fio": _fio,
    "kprobe": _kprobe,
    "loop": _loop,
    "module": _module,
    "nice": _nice,
    "null_blk": _null_blk,
    "rmdir": _rmdir,
    "scope": _scope,
    "tracing": _tracing,
    "tree": _tree,
    "umount": _umount,
    "unlink": _unlink,
    "wipe": _wipe,
    "write": _write,
    "zram": _zram,
}


# A disk that is taken from under a mounted file system makes the kernel complain for ever.
_BELOW_A_MOUNT = {"dependencies", "loop", "module", "null_blk", "rmdir", "unlink", "wipe", "zram"}
# What a reboot does not undo.
_LASTING = {"tree", "unlink"}


def _entries(path: Path) -> list[tuple[str, Path, str]] | None:
    """Return what a journal lists, or None where there is none."""
    try:
        with os.fdopen(open_private(path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IolabError(f"cannot read the journal {path}: {error.strerror}") from error
    entries = []
    this_boot = True
    for number, line in enumerate(lines, 1):
        try:
            entry: dict[str, Any] = json.loads(line)
            if number == 1:
                this_boot = entry["boot"] == _boot()
                continue
            undo, where, value = entry["undo"], entry["path"], entry["value"]
            _UNDO[undo]
            if this_boot or undo in _LASTING:
                entries.append((undo, Path(where), str(value)))
        except (ValueError, KeyError, TypeError) as error:
            # A crash may cut the last line short; the change it announces was then never made.
            if number == len(lines):
                break
            raise IolabError(f"{path}: line {number} is damaged; nothing was undone") from error
    return entries


def pending(path: Path) -> list[str]:
    """Return what `restore` would do for the journal at `path`, a line each, in its order.

    Errors: as `restore`.
    """
    return [
        " ".join(word for word in (undo, str(where), repr(value) if value else "") if word)
        for undo, where, value in reversed(_entries(path) or [])
    ]


def restore_all() -> list[str]:
    """Undo what all journals of this machine list; return as `restore`."""
    return [failure for path in JOURNALS for failure in restore(path)]


def restore(path: Path) -> list[str]:
    """Undo what the journal at `path` lists, last change first, then remove the journal.

    Returns one sentence for each undo that could not be done; the journal then stays.

    Errors: IolabError if a line before the last is not of this journal's form; UserError if another
    user may have written it.
    """
    entries = _entries(path)
    if entries is None:
        return []
    failures = []
    mounted = False
    for undo, where, value in reversed(entries):
        if mounted and undo in _BELOW_A_MOUNT:
            continue
        try:
            _UNDO[undo](where, value)
        except (OSError, IolabError) as error:
            failures.append(f"cannot undo {undo} {where}: {error}")
            mounted |= undo == "umount"
    if not failures:
        path.unlink()
        if path == FILES:
            with suppress(OSError):
                path.parent.rmdir()
    return failures
