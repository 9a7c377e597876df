# SPDX-License-Identifier: MIT
"""Run external commands.

Every command gets its own process group, and a time limit in `run`. The kernel kills it when the
thread that started it ends (PR_SET_PDEATHSIG, prctl(2)).

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

from iolab_base.errors import IolabError

Argument = Union[str, "os.PathLike[str]"]
Stream = Union[int, IO[Any], None]

_PR_SET_PDEATHSIG = 1
# After a kill: how long to wait for the rest of the output.
_DRAIN_S = 1.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_libc = ctypes.CDLL(None, use_errno=True)


class Result:
    """The result of a command that has ended.

    ``returncode`` is minus the number of the signal that killed it. In the outputs, bytes that are
    not UTF-8 are replaced. ``wall_s`` is wall time in s.
    """

    def __init__(self, returncode: int, stdout: str, stderr: str, wall_s: float) -> None:
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr
        self.wall_s = wall_s


class CommandError(IolabError):
    """A command failed, was killed or exceeded its time limit.

    `reason` is text such as "exit 1"; the message ends with the last 15 lines of `output`.
    `returncode` is minus the number of the signal that killed it; None if it did not end.
    """

    def __init__(
        self,
        argv: Sequence[str],
        reason: str,
        output: str = "",
        returncode: int | None = None,
    ) -> None:
        self.argv = list(argv)
        self.reason = reason
        self.output = output
        self.returncode = returncode
        tail = "\n".join(output.strip().splitlines()[-15:])
        command = shlex.join(self.argv)
        super().__init__(f"{command}: {reason}" + (f"\n{tail}" if tail else ""))


def _in_child(parent: int, cgroup: Path | None, memory_limit: int | None) -> None:
    # Runs between fork and exec. A parent that died before prctl() sends no signal: check again.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
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
    """Start a command in its own process group; end it with `kill_group`.

    The kernel kills the command (SIGKILL) when the thread that started it ends: start a long-lived
    command from a thread that outlives it. `env` is the whole environment; the command joins
    `cgroup` before its first instruction; `memory_limit` (RLIMIT_AS) is in bytes. Raises
    CommandError if it does not exist, may not be executed, or cannot join its cgroup.
    """
    command = [os.fspath(a) for a in argv]
    parent = os.getpid()
    process = None
    # A handler that raises while Popen waits for the exec would lose a child that already runs.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
            # _in_child takes no lock that another thread may hold at the fork.
            preexec_fn=lambda: _in_child(parent, cgroup, memory_limit),  # noqa: PLW1509
        )
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandError(command, _why_not_started(error, cwd)) from error
    except BaseException:
        if process is not None:
            kill_group(process)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _why_not_started(error: Exception, cwd: Path | None) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no folder {cwd}" if cwd is not None and not cwd.is_dir() else "no such program"
    if isinstance(error, PermissionError):
        return "may not be executed"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "may not join its cgroup or limit its memory"


def kill_group(process: subprocess.Popen[bytes], *, grace_s: float = 0.0) -> None:
    """Kill a command's process group, after SIGTERM and `grace_s` if given; wait for its end."""
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


def _communicate(
    process: subprocess.Popen[bytes], command: Sequence[str], stdin: bytes, timeout_s: float
) -> tuple[bytes, bytes]:
    """Wait for a command's end and return its output; kill it if it exceeds its time limit."""
    try:
        return process.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        kill_group(process)
        try:
            out, err = process.communicate(timeout=_DRAIN_S)
        except subprocess.TimeoutExpired as still_open:
            # A process that left the group keeps the pipes open: take what has come so far.
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


def run(
    argv: Sequence[Argument],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    check: bool = True,
) -> Result:
    """Run a command to its end, at most `timeout_s`, after which its process group is killed.

    `env` is the whole environment. Raises CommandError if the command cannot be started or exceeds
    the time limit, or, with `check`, if its exit code is not 0.
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
    out, err = _communicate(process, command, stdin.encode(), timeout_s)
    result = Result(
        process.returncode,
        out.decode(errors="replace"),
        err.decode(errors="replace"),
        time.monotonic() - began,
    )
    if check and process.returncode != 0:
        code = process.returncode
        reason = f"killed by {_signal_name(-code)}" if code < 0 else f"exit {code}"
        output = result.stderr or result.stdout
        raise CommandError(command, reason, output, result.returncode)
    return result
