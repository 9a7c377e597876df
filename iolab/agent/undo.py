# SPDX-License-Identifier: MIT
"""Undo one change of the measured machine, one function for each kind of change.

Undoing a change that was never made, or was undone before, is harmless. A change may have been
announced but not made: the journal is written first.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable

from iolab.agent.named import identity_of, wipe
from iolab.errors import IolabError
from iolab.process import run

__all__ = ["BELOW_A_MOUNT", "LASTING", "PROGRAM_MARK", "UNDO"]

# The environment variable that everything inherits that a cell's program starts.
PROGRAM_MARK = "IOLAB_PROGRAM"

# The programs that do a cell's work.
_WORK = ("fio", "dd")
_TRIES = 100
_TRY_AGAIN_S = 0.05
# Several grace periods, on a core that is idle.
_RCU_S = 0.2


def _write(path: Path, value: str) -> None:
    if path.exists():
        path.write_text(value)


def _users(folder: Path) -> list[int]:
    """Return the processes that have something open below `folder`."""
    pids = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            links = [process / "cwd", *(process / "fd").iterdir()]
            for link in links:
                with suppress(OSError):
                    target = str(link.readlink())
                    if target == str(folder) or target.startswith(f"{folder}/"):
                        pids.append(int(process.name))
                        break
    return pids


def _comm(process: Path) -> str:
    with suppress(OSError):
        return (process / "comm").read_text(errors="replace").strip()
    return ""


def _is_work(pid: int) -> bool:
    return _comm(Path(f"/proc/{pid}")) in _WORK


def _kill_until_none(find: Callable[[], list[int]]) -> bool:
    """Kill the processes that `find` lists until it lists none; return whether it succeeded."""
    for _ in range(_TRIES):
        pids = find()
        if not pids:
            return True
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        time.sleep(_TRY_AGAIN_S)
    return False


def _kill_users(folder: Path) -> None:
    """Kill all processes that have something open below `folder`."""
    _kill_until_none(lambda: _users(folder))


def _kill_work(folder: Path) -> None:
    """Kill the processes of a cell's work that have something open below `folder`.

    fio's jobs outlive a killed fio: each has a session of its own. Other programs may look into a
    real machine's folders and disks, too: a backup, udev, a person. They are not killed.
    """
    _kill_until_none(lambda: [pid for pid in _users(folder) if _is_work(pid)])


def _umount(path: Path, value: str) -> None:
    lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    if not any(line.split()[1] == str(path) for line in lines):
        return
    if value == "users":
        _kill_users(path)
    run(["umount", path], timeout_s=60)


def _rmdir(path: Path, value: str) -> None:
    with suppress(FileNotFoundError):
        path.rmdir()


def _cgroup(path: Path, value: str) -> None:
    # systemd may remove the folder at any moment.
    with suppress(FileNotFoundError):
        # A killed process stays in its cgroup until it has ended.
        _kill_until_none(lambda: [int(x) for x in (path / "cgroup.procs").read_text().split()])
        path.rmdir()


def _scope(path: Path, value: str) -> None:
    # systemd may be about to make the folder: it accepts the name first.
    run(["systemctl", "--quiet", "stop", value], timeout_s=60, check=False)
    _cgroup(path, value)


def _null_blk(path: Path, value: str) -> None:
    if path.is_dir():
        (path / "power").write_text("0")
        path.rmdir()


def _loaded(path: Path) -> bool:
    """Return whether a module is loaded, once no modprobe is running."""
    for _ in range(_TRIES):
        # A killed modprobe returns from init_module() before it dies.
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
    if (Path("/sys/block") / path.name / "loop/backing_file").exists():
        run(["losetup", "-d", path], timeout_s=60)


def _zram(path: Path, value: str) -> None:
    size = Path("/sys/block") / path.name / "disksize"
    # Another size: another program's device. Ours reads 0 until its size is set.
    if not size.exists() or size.read_text().strip() not in ("0", value):
        return
    _kill_work(path)
    number = path.name[len("zram") :]
    for tries_left in reversed(range(_TRIES)):
        try:
            Path("/sys/class/zram-control/hot_remove").write_text(number)
            return
        except OSError as error:
            # udev opens a device that was just unmounted.
            if error.errno != errno.EBUSY or not tries_left:
                raise
        time.sleep(_TRY_AGAIN_S)


def _tracing(path: Path, value: str) -> None:
    if not path.is_dir():
        return
    # trace-cmd's readers outlive a killed trace-cmd, and hold its instance.
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
    nice, start_time = value.split()
    with suppress(FileNotFoundError, ProcessLookupError):
        # A process with another start time has reused the process id.
        stat_fields = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
        if stat_fields[19] == start_time:
            os.setpriority(os.PRIO_PROCESS, int(path.name), int(nice))


def _fio(path: Path, value: str) -> None:
    # fio's jobs outlive a killed fio: each has a session of its own. On a device without a file
    # system, outside of any cgroup, only the command line tells them from others.
    report = f"--output={path}".encode()

    def find() -> list[int]:
        pids = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if report in (process / "cmdline").read_bytes().split(b"\0"):
                    pids.append(int(process.name))
        return pids

    if not _kill_until_none(find):
        raise IolabError("its jobs do not end")


def _program(path: Path, value: str) -> None:
    # What it started may have left its process group and session.
    mark = f"{PROGRAM_MARK}={value}".encode()

    def find() -> list[int]:
        pids = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    pids.append(int(process.name))
        return pids

    if not _kill_until_none(find):
        raise IolabError("its processes do not end")


def _unlink(path: Path, value: str) -> None:
    path.unlink(missing_ok=True)


def _tree(path: Path, value: str) -> None:
    # Only a folder was made: a link or a file of this name is another program's.
    if not path.exists() or not stat.S_ISDIR(path.lstat().st_mode):
        return
    _kill_work(path)
    shutil.rmtree(path)


def _wipe(path: Path, value: str) -> None:
    _kill_work(path)
    # Another disk may have this name by now.
    if path.exists() and identity_of(path) == value:
        wipe(path)


# By the name of an undo in the journal: a function of the path and the value noted there.
UNDO: dict[str, Callable[[Path, str], None]] = {
    "cgroup": _cgroup,
    "dependencies": _dependencies,
    "fio": _fio,
    "kprobe": _kprobe,
    "loop": _loop,
    "module": _module,
    "nice": _nice,
    "null_blk": _null_blk,
    "program": _program,
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
BELOW_A_MOUNT = {"dependencies", "loop", "module", "null_blk", "rmdir", "unlink", "wipe", "zram"}
# Changes that survive a reboot.
LASTING = {"tree", "unlink"}
