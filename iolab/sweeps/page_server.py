# SPDX-License-Identifier: MIT
"""Fork the pages of a sweep from one process that has imported what they need.

``python -m iolab.sweeps.page_server`` takes its orders from the socket that is its standard input,
one message for each page: the arguments of `iolab.sweeps.page.main`, with the page's log and a pipe
that gets the exit code. `iolab.sweeps.warm` is the other side. Each page forks the kernel of its
notebook (`iolab.sweeps.spare`).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import nbformat

from iolab.sweeps import page
from iolab.sweeps.ending import die_with
from iolab.sweeps.html import html_page
from iolab.sweeps.spare import SpareKernel

__all__ = ["main"]

# What notebooks import, and what their HTML page needs.
_NEEDED: Final = (
    "iolab.experiment",
    "iolab.figures",
    "iolab.figures.interactive",
    "iolab.figures.verdicts",
    "iolab.report",
    "iolab.stats.threshold",
    "iolab.stats.verdicts",
    "iolab.sweeps.block",
    "ipykernel.debugger",
    "matplotlib.backends.backend_agg",
    "nbconvert",
    "tqdm",
)
_READY: Final = b"ready"
_MESSAGE_BYTES: Final = 1 << 16


def main() -> int:
    """Import, then fork a page for each message until the socket is closed."""
    warnings.simplefilter("ignore")
    control = socket.socket(fileno=0)
    try:
        for name in _NEEDED:
            importlib.import_module(name)
    except ImportError as error:
        print(json.dumps({"error": f"cannot import {name}: {error}"}))
        return 1
    # The first page reads the templates' extensions; what it makes is not kept.
    html_page(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]
    # A collection in a fork would write to all that the forks share.
    gc.collect()
    gc.freeze()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    control.send(_READY)
    tells: dict[int, int] = {}
    while True:
        readable = select.select([control.fileno(), ended], [], [])[0]
        if ended in readable:
            os.read(ended, _MESSAGE_BYTES)
            _tell_of_ends(tells)
        if control.fileno() in readable:
            message, (*files,), _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 2)
            if not message:
                return 0
            log, tell = files
            parent = os.getpid()
            if (pid := os.fork()) == 0:
                _be_page(json.loads(message), log, parent, (ended, wake, tell, *tells.values()))
            os.close(log)
            tells[pid] = tell
            control.send(str(pid).encode())


def _tell_of_ends(tells: dict[int, int]) -> None:
    """Write the exit code of each page that ended to its pipe."""
    while tells:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        tell = tells.pop(pid)
        # Nobody may be left to hear it.
        with suppress(BrokenPipeError):
            os.write(tell, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(tell)


def _be_page(words: Sequence[str], log: int, parent: int, others: Sequence[int]) -> None:
    """Make a page in a fork of the warm process, and end."""
    code = 1
    try:
        os.setsid()
        die_with(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for ours, place in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(ours, place)
        for handle in (nothing, log, *others):
            os.close(handle)
        code = page.main(words, SpareKernel())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
