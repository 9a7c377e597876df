# SPDX-License-Identifier: MIT
"""Runs on a measured machine: what others run and have there, and whether it is as they left it.

Processes of another user carry the names, arguments and variables of ours, and stand where ours
work; a loop device is root's own.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

_USER = 1001
# prctl(PR_SET_NAME) changes what `ps` and /proc/PID/comm say.
_PROCESS = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
held = open("/etc/passwd")
while True:
    time.sleep(1)
"""
_MIB = 8


class Bystanders:
    """Another user's processes and root's loop device, from now on.

    Parameters
    ----------
    folder : Path
        Where the loop device's file is made.
    cells : list of str
        The ids of the cells whose fio the processes pretend to be.
    places : list of Path
        Folders in which they stand.
    """

    def __init__(self, folder: Path, cells: list[str], places: list[Path]) -> None:
        outputs = [f"--output=/run/iolab/fio-{cell}.json" for cell in cells]
        self._processes = {
            "a kworker's name": self._start("kworker/0:66", []),
            "another kworker's name": self._start("kworker/u8:1+ev", []),
            "fio's arguments": self._start("fio", outputs),
            "a shell with fio's arguments": self._start("sh", outputs),
            "modprobe's name": self._start("modprobe", ["null_blk"]),
            "trace-cmd's name": self._start("trace-cmd", ["record"]),
            "a mark of a run": self._start("stress-ng", [], IOLAB_RUN="0123456789abcdef" * 2),
            **{f"a dd in {place}": self._start("dd", [], place) for place in places},
        }
        self._image = folder / "others.img"
        self._image.write_bytes(os.urandom(_MIB << 20))
        argv = ["losetup", "--find", "--show", str(self._image)]
        made = subprocess.run(argv, check=True, capture_output=True, text=True)
        self._loop = Path(made.stdout.strip())
        self._digest = self._read()

    def _start(
        self, name: str, words: list[str], folder: Path = Path("/"), **variables: str
    ) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", _PROCESS, name, *words]
        environment = {**os.environ, **variables}
        user = {"user": _USER, "group": _USER, "extra_groups": []}
        return subprocess.Popen(argv, env=environment, cwd=folder, start_new_session=True, **user)  # type: ignore[call-overload,no-any-return]

    def _read(self) -> str:
        return hashlib.sha256(self._loop.read_bytes()).hexdigest()

    def wrongs(self) -> list[str]:
        """Return what is not as it was."""
        found = []
        for name, process in self._processes.items():
            if process.poll() is not None:
                found.append(f"a process with {name} was ended: {process.returncode}")
            elif nice := os.getpriority(os.PRIO_PROCESS, process.pid):
                found.append(f"a process with {name} has nice {nice}")
        backing = Path("/sys/block", self._loop.name, "loop/backing_file")
        if not backing.exists() or backing.read_text().strip() != str(self._image):
            found.append(f"{self._loop} lost its file")
        elif self._read() != self._digest:
            found.append(f"{self._loop} was written")
        return found

    def end(self) -> None:
        """End them, and detach the loop device."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        subprocess.run(["losetup", "--detach", str(self._loop)], check=False)
        self._image.unlink()
