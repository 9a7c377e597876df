# SPDX-License-Identifier: MIT
"""Undo one change of the measured machine, one function for each kind of change.

Undoing a change that was never made, or was undone before, is harmless. A change may have been
announced but not made: the journal is written first.

Anything that has since taken one of our names or numbers is left alone. A process is ours if it has
inherited the run's mark and runs as the agent's user: the mark is random, and it is in files and
environments that nobody else reads. A loop device is ours by its backing file, a disk by its
identity (`iolab_agent.named.identity_at`), a module by its inode in sysfs. Names in configfs,
cgroups, tracefs and of md arrays are noted only if they are free (`Journal.note_new`). A
device-mapper device is ours by its UUID.

A program that is not ours is not ended, even if it uses what must be removed. The undo waits for it
a while, then fails and names it; the next restore tries again. Only the virtual machine, which
nobody else uses, ends it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import signal
import stat
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Callable

from iolab_agent.named import LOOP_CLEAR, identity_at, identity_of, loops, wipe
from iolab_agent.proc import in_guest, is_kernel_thread, processes, stat_of, text_of, user_of
from iolab_base.errors import IolabError
from iolab_base.process import run

# The environment variable that everything that a run starts inherits.
MARK = "IOLAB_RUN"
# The source of a mount that has no device.
MOUNTED_BY_US = "iolab"

_SYS_BLOCK = Path("/sys/block")
_TRIES = 100
_TRY_AGAIN_S = 0.05
# Several grace periods on an idle core.
_RCU_S = 0.2
# include/linux/fs.h
_UMOUNT_NOFOLLOW = 8
_libc = ctypes.CDLL(None, use_errno=True)


def _write(path: Path, value: str) -> None:
    if path.exists():
        path.write_text(value)


def _queue(path: Path, value: str) -> None:
    old, _, identity = value.partition(" ")
    folder = _SYS_BLOCK / path.relative_to(_SYS_BLOCK).parts[0]
    # Another disk may have this name by now.
    if path.exists() and identity_at(folder) == identity:
        path.write_text(old)


def _users(folder: Path) -> list[int]:
    """Return the processes that have something open at or below `folder`."""
    pids = []
    for pid in processes():
        process = Path(f"/proc/{pid}")
        with suppress(OSError):
            links = [
                *(process / name for name in ("cwd", "root", "exe")),
                *(process / "fd").iterdir(),
            ]
            for link in links:
                with suppress(OSError):
                    target = str(link.readlink())
                    if target == str(folder) or target.startswith(f"{folder}/"):
                        pids.append(pid)
                        break
    return pids


def _described(pid: int) -> str:
    comm = text_of(Path(f"/proc/{pid}/comm")) or "ended"
    name = "".join(c if c.isprintable() else "?" for c in comm)
    return f"process {pid} ({name}) of user {user_of(pid)}"


def _pidfd(pid: int) -> int:
    """Return a descriptor of a process; -1 where the kernel or this Python has none."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return -1


def _kill_until_none(find: Callable[[], Collection[int]]) -> None:
    """Kill the processes that `find` lists until it lists none."""
    pids: Collection[int] = ()
    for _ in range(_TRIES):
        handles: dict[int, int] = {}
        for pid in find():
            with suppress(ProcessLookupError):
                handles[pid] = _pidfd(pid)
        # The number may have become another process's since, but not its descriptor.
        pids = find() if handles else ()
        for pid, handle in handles.items():
            with suppress(ProcessLookupError):
                if pid not in pids:
                    continue
                if handle < 0:
                    os.kill(pid, signal.SIGKILL)
                else:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in handles.values():
            if handle >= 0:
                os.close(handle)
        if not pids:
            return
        time.sleep(_TRY_AGAIN_S)
    raise IolabError(f"{', '.join(_described(pid) for pid in pids)} does not end")


def _processes(path: Path, value: str) -> None:
    mark = f"{MARK}={value}".encode()

    def is_ours(pid: int) -> bool:
        with suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return pid != os.getpid() and (user_of(pid) == os.getuid() or in_guest())
        return False

    _kill_until_none(lambda: [pid for pid in processes() if is_ours(pid)])


def _once_free(path: Path, act: Callable[[], object]) -> None:
    """Do what the kernel refuses while a file, folder or disk is in use."""
    for _ in range(_TRIES):
        try:
            act()
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        if in_guest():
            _kill_until_none(lambda: _users(path))
        # udev opens a device that was just unmounted; a program may look into a folder.
        time.sleep(_TRY_AGAIN_S)
    users = (
        ", ".join(_described(pid) for pid in _users(path)) or "something that /proc does not show"
    )
    raise IolabError(f"it is in use by {users}")


def _umount(path: Path, value: str) -> None:
    lines = [x.split() for x in Path("/proc/self/mounts").read_text(errors="replace").splitlines()]
    sources = [source for source, where, *_ in lines if where == str(path)]
    # Somebody may have unmounted ours, and mounted another. A disk's mount has its node for source.
    if not sources or (value and sources[-1] != value):
        return

    def umount() -> None:
        if _libc.umount2(os.fsencode(path), _UMOUNT_NOFOLLOW):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    _once_free(path, umount)


def _rmdir(path: Path, value: str) -> None:
    with suppress(FileNotFoundError):
        path.rmdir()


def _members(group: Path) -> set[int]:
    # 0 is a process of another PID namespace; kill(2) takes it for the caller's own group.
    return {int(x) for x in (group / "cgroup.procs").read_text().split()} - {0}


def _cgroup(path: Path, value: str) -> None:
    # systemd may remove the folder at any moment.
    with suppress(FileNotFoundError):
        # A killed process stays in its cgroup until it has ended.
        _kill_until_none(lambda: _members(path))
        path.rmdir()


def _scope(path: Path, value: str) -> None:
    # systemd may be about to make the folder: it accepts the name first.
    run(["systemctl", "--quiet", "stop", value], timeout_s=60, check=False)
    _cgroup(path, value)


def _null_blk(path: Path, value: str) -> None:
    if path.is_dir():
        (path / "power").write_text("0")
        path.rmdir()


def _loading() -> set[int]:
    """Return root's processes that load or unload a module, including those the kernel starts."""
    found = set()
    for pid in processes():
        with suppress(OSError):
            if stat_of(pid)[0] == "modprobe" and user_of(pid) == 0:
                found.add(pid)
    return found


def _loaded(path: Path) -> bool:
    """Return whether a module is loaded, after every modprobe that runs now has ended."""
    running = _loading()
    for _ in range(_TRIES if running else 0):
        # A killed modprobe returns from init_module() before it dies.
        running &= _loading()
        if not running:
            break
        time.sleep(_TRY_AGAIN_S)
    return path.is_dir()


def _module(path: Path, value: str) -> None:
    name, _, inode = value.partition(" ")
    # Somebody may have unloaded ours, and loaded it again.
    if not _loaded(path) or (inode and inode != str(path.stat().st_ino)):
        return
    used = any(path.parent.glob(f"*/holders/{path.name}"))
    result = run(["rmmod", name], timeout_s=60, check=False)
    if path.is_dir():
        raise IolabError(result.stderr.strip() or "the module is still there")
    if used:
        # RCU callbacks of what the module did may be functions of a module that it used, and
        # that module may not wait for them when it is unloaded. configfs does not:
        # configfs_free_inode() is such a callback, and configfs_exit() calls no rcu_barrier()
        # (fs/configfs/mount.c). Kernel 5.10 crashed when configfs went right after null_blk.
        time.sleep(_RCU_S)


def _dependencies(path: Path, value: str) -> None:
    remaining = [path / name for name in value.split()]
    while remaining:
        # Unload those that no other module or process uses.
        free = [m for m in remaining if not _loaded(m) or (m / "refcnt").read_text().strip() == "0"]
        if not free:
            break
        for module in free:
            with suppress(IolabError):
                _module(module, module.name)
            remaining.remove(module)


def _loop(path: Path, value: str) -> None:
    # A name alone is not enough: it may be a name in another mount namespace. Neither is an inode:
    # a file system gives a removed file's number to the next one.
    names = (str(path), f"{path} (deleted)")
    for handle, loop in loops():
        backing = text_of(_SYS_BLOCK / loop.name / "loop/backing_file")
        if backing in names and f"{loop.device}:{loop.inode}" == value:
            fcntl.ioctl(handle, LOOP_CLEAR)


def _zram(path: Path, value: str) -> None:
    size, _, inode = value.partition(" ")
    folder = _SYS_BLOCK / path.name
    if not folder.exists() or (inode and inode != str(folder.stat().st_ino)):
        return
    # Another size: another program has found it unused. Ours reads 0 until its size is set.
    if (folder / "disksize").read_text().strip() not in ("0", size):
        return
    number = path.name[len("zram") :]
    remove = Path("/sys/class/zram-control/hot_remove")
    _once_free(path, lambda: remove.write_text(number))


def _mapped(path: Path, value: str) -> None:
    # Without a table yet, it has its UUID already.
    disks = (d for d in _SYS_BLOCK.glob("dm-*") if text_of(d / "dm/uuid") == value)
    disk = next(disks, None)
    if disk is None:
        return
    name = (disk / "dm/name").read_text().strip()

    def remove() -> None:
        result = run(["dmsetup", "remove", name], timeout_s=60, check=False)
        if result.returncode:
            raise OSError(errno.EBUSY, result.stderr.strip())

    _once_free(Path("/dev") / disk.name, remove)


def _array(path: Path, value: str) -> None:
    if not path.is_dir():
        return
    stop = path / "md/array_state"
    _once_free(Path("/dev") / path.name, lambda: stop.write_text("clear"))
    # A worker of the kernel's removes the disk (mddev_delayed_delete() of drivers/md/md.c).
    for _ in range(_TRIES):
        if not path.exists():
            return
        time.sleep(_TRY_AGAIN_S)
    raise IolabError("the array is stopped and still there")


def _tracing(path: Path, value: str) -> None:
    if path.is_dir():
        _once_free(path, path.rmdir)


def _kprobe(path: Path, value: str) -> None:
    if path.exists() and any(f":{value} " in line for line in path.read_text().splitlines()):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, f"-:{value}\n".encode())
        finally:
            os.close(handle)


def _nice(path: Path, value: str) -> None:
    nice, start_time = value.split()
    with suppress(FileNotFoundError, ProcessLookupError):
        _, fields = stat_of(int(path.name))
        # A process with another start time has reused the process id. That cannot happen from here
        # to the next line: the kernel goes through all other ids first (alloc_pid()).
        if fields[19] == start_time and is_kernel_thread(fields):
            os.setpriority(os.PRIO_PROCESS, int(path.name), int(nice))


def _unlink(path: Path, value: str) -> None:
    path.unlink(missing_ok=True)


def _tree(path: Path, value: str) -> None:
    # Only a folder was made: a link or a file of this name is another program's.
    if not path.exists() or not stat.S_ISDIR(path.lstat().st_mode):
        return
    shutil.rmtree(path)


def _wipe(path: Path, value: str) -> None:
    # Another disk may have this name by now.
    if path.exists() and identity_of(path) == value:
        wipe(path)


# By the name of an undo in the journal: a function of the path and the value noted there.
UNDO: dict[str, Callable[[Path, str], None]] = {
    "cgroup": _cgroup,
    "dependencies": _dependencies,
    "dm": _mapped,
    "kprobe": _kprobe,
    "loop": _loop,
    "md": _array,
    "module": _module,
    "nice": _nice,
    "null_blk": _null_blk,
    "processes": _processes,
    "queue": _queue,
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
# Not undone while a file system is still mounted: the kernel reports I/O errors without end when
# the disk below a mounted file system disappears.
BELOW_A_MOUNT = {"dependencies", "dm", "loop", "md", "module", "null_blk", "rmdir", "unlink"}
BELOW_A_MOUNT |= {"wipe", "zram"}
# The last line about a path decides: it distinguishes what we made from what another made there.
IDENTIFIED = {"module", "zram"}
# Changes that survive a reboot.
LASTING = {"tree", "unlink"}
