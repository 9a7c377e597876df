# SPDX-License-Identifier: MIT
"""Run a block detached from its caller, with its state in a folder.

The caller puts ``agent.pyz`` and ``plan.json`` into the folder. The run writes ``console.txt``,
``results`` and, at its end, ``agent.json`` with its exit code. On SIGTERM it writes ``agent.json``
before it restores the machine. ``alive`` is locked while it runs.
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

from iolab_agent.block import run_block
from iolab_agent.plan_reader import load_plan
from iolab_base.errors import IolabError

# The exit code that a shell reports after SIGTERM.
_TERMINATED = 128 + signal.SIGTERM
_ASKED_TO_END: dict[str, object] = {
    "exit": _TERMINATED,
    "stderr": "it was asked to end (SIGTERM)",
}


def state_of(folder: Path) -> str:
    """Return a run's state: "alive", "ended" (see ``agent.json``), or "gone".

    A run that was killed or never begun is gone.
    """
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
    """Start the run of a folder in its own session, and return once it is alive.

    A run that is already alive continues. Raises IolabError if the run does not start.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        # The second child leads no session, so it can get no controlling terminal.
        if os.fork() == 0:
            _live(folder, writer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read().decode(errors="replace")
    os.waitpid(child, 0)
    if answer != "alive":
        raise IolabError(f"the run did not start: {answer or 'it was killed'}")


def _live(folder: Path, writer: int) -> None:
    """Run as the detached process; never returns."""
    try:
        alive = os.open(folder / "alive", os.O_RDWR | os.O_CREAT, 0o600)
        # Keeps bare file names, in any program that it runs, out of the root folder.
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDONLY)
        console = os.open(folder / "console.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, handle in enumerate((null, console, console)):
            os.dup2(handle, number)
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Left by an earlier run.
        (folder / "agent.json").unlink(missing_ok=True)
    except BlockingIOError:
        # The run is already alive.
        os.write(writer, b"alive")
        os._exit(0)
    except OSError as error:
        os.write(writer, str(error).encode())
        os._exit(1)
    os.write(writer, b"alive")
    os.close(writer)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def terminate(number: int, frame: FrameType | None) -> None:
        # A second SIGTERM must not interrupt the restoring that the first one started.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # Written first, so that a caller does not follow it while it restores.
        _write_ending(folder, _ASKED_TO_END)
        sys.exit(_TERMINATED)

    signal.signal(signal.SIGTERM, terminate)
    _write_ending(folder, _ending(folder))
    os._exit(0)


def _write_ending(folder: Path, ending: dict[str, object]) -> None:
    temporary = folder / ".agent.json"
    temporary.write_text(json.dumps(ending))
    temporary.replace(folder / "agent.json")


def _ending(folder: Path) -> dict[str, object]:
    try:
        run_block(load_plan(folder / "plan.json"), folder / "results")
    except IolabError as error:
        return {"exit": error.exit_code, "stderr": str(error)}
    except SystemExit:
        return _ASKED_TO_END
    except BaseException:
        return {"exit": 1, "stderr": traceback.format_exc()}
    return {"exit": 0, "stderr": ""}
