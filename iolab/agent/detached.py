# SPDX-License-Identifier: MIT
"""A run that outlives whoever began it, in a folder that tells how far it is.

``agent.pyz`` and ``plan.json`` are put there; the run leaves ``results``, ``console.txt``, and last
``agent.json``: how it ended. ``alive`` is locked for as long as it lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

from iolab.agent.block import run_block
from iolab.agent.plan import load_plan
from iolab.errors import IolabError

__all__ = ["begin", "state_of"]

_TERMINATED = 128 + signal.SIGTERM


def state_of(folder: Path) -> str:
    """Return "alive", "ended" (``agent.json`` says how) or "gone": killed, or never begun."""
    try:
        handle = os.open(folder / "alive", os.O_RDONLY)
    except FileNotFoundError:
        return "gone"
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "alive"
    finally:
        os.close(handle)
    return "ended" if (folder / "agent.json").exists() else "gone"


def begin(folder: Path) -> None:
    """Begin the run of `folder` in a session of its own, and return once it is alive.

    A run that is alive already is left alone. Errors: IolabError if it does not come to life.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        # The one that stays is nobody's child and leads no session: no terminal can end it.
        if os.fork() == 0:
            _live(folder, writer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode(errors="replace")
    os.waitpid(child, 0)
    if said != "alive":
        raise IolabError(f"the run did not begin: {said or 'it said nothing'}")


def _live(folder: Path, writer: int) -> None:
    """Be the detached process, from its first instruction to its exit."""
    try:
        alive = os.open(folder / "alive", os.O_RDWR | os.O_CREAT, 0o600)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDONLY)
        console = os.open(folder / "console.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, handle in enumerate((nothing, console, console)):
            os.dup2(handle, number)
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Somebody began it before.
        os.write(writer, b"alive")
        os._exit(0)
    except OSError as error:
        os.write(writer, str(error).encode())
        os._exit(1)
    os.write(writer, b"alive")
    os.close(writer)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    ending = _ending(folder)
    temporary = folder / ".agent.json"
    temporary.write_text(json.dumps(ending))
    temporary.replace(folder / "agent.json")
    os._exit(0)


def _terminate(number: int, frame: FrameType | None) -> None:
    # Once: what the first one has begun, putting all back, is not to be cut off by a second.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(_TERMINATED)


def _ending(folder: Path) -> dict[str, object]:
    try:
        run_block(load_plan(folder / "plan.json"), folder / "results")
    except IolabError as error:
        return {"exit": error.exit_code, "stderr": str(error)}
    except SystemExit:
        return {"exit": _TERMINATED, "stderr": "it was asked to end (SIGTERM)"}
    except BaseException:
        return {"exit": 1, "stderr": traceback.format_exc()}
    return {"exit": 0, "stderr": ""}
