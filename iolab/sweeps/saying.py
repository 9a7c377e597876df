# SPDX-License-Identifier: MIT
"""How a program of a sweep says why it failed, and how the sweep reads it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Final

from iolab.errors import IolabError
from iolab.interrupts import forget_interrupt

__all__ = ["error_said", "open_log", "run_saying"]

# Of what a program said, no more is looked at.
_MOST: Final = 1 << 20


def open_log() -> IO[bytes]:
    """Return a file in memory for what a program says: the disk of its results may be full."""
    return os.fdopen(os.memfd_create("log"), "w+b", buffering=0)


def run_saying(work: Callable[[], None]) -> int:
    """Run a program's work and return its exit code; an error is one line of JSON on stdout.

    SIGTERM ends the work as Ctrl-C does: virtual machines and folders end with it.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
    except KeyboardInterrupt:
        forget_interrupt()
        return 128 + signal.SIGTERM
    except IolabError as error:
        print(json.dumps({"error": str(error)}))
        return error.exit_code
    except OSError as error:
        where = "" if error.filename is None else f": {error.filename}"
        print(json.dumps({"error": f"{error.strerror or error}{where}"}))
        return IolabError.exit_code
    finally:
        # Before Python prints a traceback, which is then the last that is said.
        sys.stdout.flush()
    return 0


def error_said(log: IO[bytes], code: int) -> str:
    """Return why a program failed: its last line of output is JSON that says it, or nothing is."""
    # The program's place in the file is this one, too.
    size = os.fstat(log.fileno()).st_size
    said = os.pread(log.fileno(), _MOST, max(0, size - _MOST)).decode(errors="replace").strip()
    with suppress(ValueError, KeyError, IndexError, TypeError):
        return str(json.loads(said.splitlines()[-1])["error"])
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        return f"was ended by {signal.Signals(number).name}"
    return f"ended with {code}: {said[-500:] or 'no message'}"
