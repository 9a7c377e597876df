# SPDX-License-Identifier: MIT
"""A virtual machine that runs a program of a test's own in the agent's place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from icountvm.channel import CHANNEL_BYTES
from iolab.blocks import encode_plan
from iolab.targets import vm

IN_GUEST = Path(__file__).with_name("in_guest.py")


# What the guest's first process calls in the agent's place. Its children find the agent, too.
_MAIN = """
import os, runpy, sys


def main(argv):
    with open("/run/program.py", "w") as file:
        file.write({program!r})
    os.environ["PYTHONPATH"] = "/icountvm/code.pyz"
    sys.argv = [file.name, *argv]
    try:
        runpy.run_path(file.name, run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
"""


class _AnyName(dict[str, int]):
    """The most bytes of each file, whatever its name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return CHANNEL_BYTES


def start_in_guests(patch: pytest.MonkeyPatch, program: str) -> None:
    """Let virtual machines start a program in the agent's place, which may leave other files.

    It comes with the plan, so the machine is restored from the same snapshot as any other.
    """
    main = _MAIN.format(program=program)
    patch.setattr(
        vm, "plan_bytes", lambda plan: json.dumps({**encode_plan(plan), "program": main}).encode()
    )
    patch.setattr(vm, "result_bytes", lambda plan, cpus: _AnyName())


def cell_of(results: Path, name: str) -> Any:
    """Return what the agent wrote of a cell into a folder of results."""
    found: dict[str, Any] = json.loads((results / "cells" / f"{name}.json").read_text())
    return found
