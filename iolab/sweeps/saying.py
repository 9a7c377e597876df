# SPDX-License-Identifier: MIT
"""How a program of a sweep says why it failed, and how the sweep reads it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from iolab.errors import IolabError
from iolab.interrupts import forget_interrupt

__all__ = ["error_said", "run_saying"]


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
    finally:
        # Before Python prints a traceback, which is then the last that is said.
        sys.stdout.flush()
    return 0


def error_said(log: Path, code: int) -> str:
    """Return why a program failed: its last line of output is JSON that says it, or nothing is."""
    said = log.read_text(errors="replace").strip()
    with suppress(ValueError, KeyError, IndexError, TypeError):
        return str(json.loads(said.splitlines()[-1])["error"])
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        return f"was ended by {signal.Signals(number).name}"
    return f"ended with {code}: {said[-500:] or 'no message'}"
