# SPDX-License-Identifier: MIT
"""The warm process of a sweep's pages: it has imported what they need, and each is forked from it.

A page and the kernel of its notebook import for six seconds, and a sweep has a page for each
block. `iolab.sweeps.page_server` is the other side.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final, Self

from iolab.errors import IolabError
from iolab.process import kill_group, start
from iolab.sweeps.ending import signals_held
from iolab.sweeps.handover import handed_over, program_environment
from iolab.sweeps.saying import error_said, open_log

__all__ = ["WarmPage", "WarmPages"]

_MESSAGE_BYTES: Final = 1 << 16


class WarmPage:
    """A page that was forked from the warm process; used as a `subprocess.Popen`.

    Parameters
    ----------
    pid : int
        Its process and process group.
    told : int
        File descriptor that gets its exit code, or the end of file when the warm process ends.
    """

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._told = told

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises
        ------
        subprocess.TimeoutExpired
            If it still runs after `timeout` seconds.
        """
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["page"], timeout or 0.0)
        return code

    def _code(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout)[0]:
            # Without the warm process the kernel has killed its pages.
            self.returncode = int(os.read(self._told, 16) or -signal.SIGKILL)
            os.close(self._told)
        return self.returncode


class WarmPages:
    """The warm process, from the side of the sweep that wants pages; a context manager.

    It knows the pathologies that are registered here when it starts: with the first page.

    Parameters
    ----------
    folder : Path
        Where what it is handed is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._stack:
            if self._process is not None:
                self._control.close()
                # The kernel ends the pages with it.
                kill_group(self._process)

    def warm_up(self) -> None:
        """Start the process, unless it runs, and wait until it has imported.

        One that was killed, as a kernel does where memory is short, is started anew.

        Raises
        ------
        IolabError
            If it ends before, with the reason.
        """
        if self._process is None:
            self._stack.enter_context(handed_over(self._folder))
        elif self._process.poll() is None:
            return
        else:
            self._control.close()
        self._log = self._stack.enter_context(open_log())
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, signals_held():
            self._process = start(
                [sys.executable, "-m", "iolab.sweeps.page_server"],
                stdin=theirs.fileno(),
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=program_environment(),
            )
        self._answer()

    def start(self, words: Sequence[str | Path], log: IO[bytes]) -> WarmPage:
        """Start a page, after `warm_up`.

        Parameters
        ----------
        words : sequence of str or path
            The arguments of `iolab.sweeps.page.main`.
        log : file
            Gets what the page says.

        Raises
        ------
        IolabError
            If the warm process has ended.
        """
        told, tells = os.pipe()
        try:
            message = json.dumps([os.fspath(word) for word in words]).encode()
            with suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._control, [message], [log.fileno(), tells])
            pid = int(self._answer())
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(tells)
        return WarmPage(pid, told)

    def _answer(self) -> bytes:
        with suppress(ConnectionResetError):
            if answer := self._control.recv(_MESSAGE_BYTES):
                return answer
        code = self._process.wait() if self._process else 0
        raise IolabError(f"the process that makes pages {error_said(self._log, code)}")
