# SPDX-License-Identifier: MIT
"""The one door to other programs.

Every program gets its own process group and a time limit, and dies with whoever started it.
This module travels with the agent: standard library only, Python 3.9.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Union

from iolab.errors import IolabError

__all__ = ["CommandError", "Result", "kill_group", "run", "start"]

Argument = Union[str, "os.PathLike[str]"]
Stream = Union[int, IO[Any], None]

_PR_SET_PDEATHSIG = 1
_LAST_WORDS_S = 1.0
_libc = ctypes.CDLL(None, use_errno=True)


class Result:
    """What a finished program left: its return code, output as text and wall time."""

    def __init__(self, returncode: int, stdout: str, stderr: str, wall_s: float) -> None:
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        self.wall_s = wall_s


class CommandError(IolabError):
    """A program failed, was killed or ran out of time; carries its last output."""

    def __init__(self, argv: Sequence[str], reason: str, output: str = "") -> None:
        self.argv = list(argv)
        self.reason = reason
        self.output = output
        tail = "\n".join(output.strip().splitlines()[-15:])
        command = shlex.join(self.argv)
        super().__init__(f"{command}: {reason}" + (f"\n{tail}" if tail else ""))


def _in_child(parent: int, cgroup: Path | None, memory_limit: int | None) -> None:
    # After fork, before exec. The kernel forgets a parent that died before the call: look again.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)
    if cgroup is not None:
        (cgroup / "cgroup.procs").write_text("0")
    if memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))


def start(
    argv: Sequence[Argument],
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cgroup: Path | None = None,
    memory_limit: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in its own process group, tied to the calling thread's life.

    The kernel kills the program (SIGKILL) when the thread that started it ends, however it ends,
    so long-lived programs are started from threads that outlive them. The program begins inside
    the folder `cgroup`, and cannot map more than `memory_limit` bytes.

    Errors: CommandError if the program does not exist or may not be executed.
    """
    command = [os.fspath(a) for a in argv]
    parent = os.getpid()
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
            # Nothing here takes a lock that another thread may hold at the fork.
            preexec_fn=lambda: _in_child(parent, cgroup, memory_limit),  # noqa: PLW1509
        )
    except FileNotFoundError as error:
        missing = f"no folder {cwd}" if cwd is not None and not cwd.is_dir() else "no such program"
        raise CommandError(command, missing) from error
    except PermissionError as error:
        raise CommandError(command, "may not be executed") from error
    except OSError as error:
        raise CommandError(command, error.strerror or str(error)) from error
    except subprocess.SubprocessError as error:
        raise CommandError(command, "may not join its cgroup or limit its memory") from error


def kill_group(process: subprocess.Popen[bytes], *, grace_s: float = 0.0) -> None:
    """End a program of `start` with all it started: SIGTERM, then SIGKILL after `grace_s`."""
    with suppress(ProcessLookupError):
        if grace_s > 0:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def run(
    argv: Sequence[Argument],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    check: bool = True,
) -> Result:
    """Run a program to its end and return its output.

    Errors: CommandError if it cannot be started, returns non-zero (unless ``check=False``) or
    exceeds `timeout_s`; then its whole process group has been killed.
    """
    command = [os.fspath(a) for a in argv]
    began = time.monotonic()
    process = start(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
    )
    try:
        out, err = process.communicate(stdin.encode(), timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        kill_group(process)
        try:
            out, err = process.communicate(timeout=_LAST_WORDS_S)
        except subprocess.TimeoutExpired as still_open:
            # A program that left the group holds the output: what came until now is enough.
            out, err = still_open.stdout or b"", still_open.stderr or b""
        text = (out + err).decode(errors="replace")
        raise CommandError(command, f"no end after {timeout_s:g} s", text) from error
    except BaseException:
        kill_group(process, grace_s=2.0)
        raise
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    result = Result(
        process.returncode,
        out.decode(errors="replace"),
        err.decode(errors="replace"),
        time.monotonic() - began,
    )
    if check and process.returncode != 0:
        code = process.returncode
        reason = f"killed by {_signal_name(-code)}" if code < 0 else f"exit {code}"
        raise CommandError(command, reason, result.stderr or result.stdout)
    return result
