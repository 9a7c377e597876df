# SPDX-License-Identifier: MIT
"""Processes of a second user of this machine, who calls them as he likes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import child_environment

MALLORY = 1001
# Becomes the user, then what it is asked for: whatever it inherits and is called with stays. A
# process that has changed its user is not dumpable: its files in /proc are root's.
_IMPOSTOR = """
import ctypes, os, sys, time
name, dumpable, folder = sys.argv[1:4]
libc = ctypes.CDLL(None)
os.chdir(folder)
os.setgroups([])
os.setgid({user})
os.setuid({user})
libc.prctl(4, int(dumpable), 0, 0, 0)
libc.prctl(15, os.fsencode(name), 0, 0, 0)
print("ready", flush=True)
"""
WAIT = "time.sleep(1000)\n"
# A new process all the time, of which one is always there.
SPAWN = """
while True:
    child = os.fork()
    if not child:
        time.sleep(0.05)
        os._exit(0)
    time.sleep(0.02)
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                break
        except ChildProcessError:
            break
"""


@contextmanager
def impostor(
    name: str = "fio",
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    folder: Path = Path("/"),
    dumpable: bool = True,
    script: str = WAIT,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of the second user under a name, with more arguments, for a ``with`` block."""
    program = _IMPOSTOR.replace("{user}", str(MALLORY)) + script
    argv = [sys.executable, "-S", "-c", program, name, str(int(dumpable)), str(folder), *arguments]
    with subprocess.Popen(
        argv,
        env=child_environment(**(environment or {})),
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()
