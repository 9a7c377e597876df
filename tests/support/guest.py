# SPDX-License-Identifier: MIT
"""A virtual machine that runs a program of a test's own in the agent's place."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from iolab.targets import vm
from iolab.targets.shipping import agent_archive
from iolab.vm.channel import CHANNEL_BYTES

__all__ = ["IN_GUEST", "archive_with", "cell_of", "start_in_guests"]

IN_GUEST = Path(__file__).with_name("in_guest.py")


# What the guest's first process calls in the agent's place.
_MAIN = """
import runpy
import sys


def main(argv):
    sys.argv = ["/iolab/agent.pyz", *argv]
    try:
        runpy.run_path("/iolab/agent.pyz", run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
"""
_AGENT = "iolab/agent/__main__.py"


def archive_with(program: str) -> bytes:
    """Return the agent's archive with another program to start.

    The agent stands beside it: what the program imports of ``iolab.agent.__main__`` is the agent's.
    """
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(agent_archive())) as shipped,
        zipfile.ZipFile(stream, "w") as made,
    ):
        own = program.replace("iolab.agent.__main__", "iolab.agent.shipped")
        instead = {_AGENT: _MAIN, "__main__.py": own}
        for name in shipped.namelist():
            made.writestr(name, instead.get(name) or shipped.read(name))
        made.writestr("iolab/agent/shipped.py", shipped.read(_AGENT))
    return stream.getvalue()


class _AnyName(dict[str, int]):
    """The most bytes of each file, whatever its name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return CHANNEL_BYTES


def start_in_guests(patch: pytest.MonkeyPatch, program: str) -> None:
    """Let virtual machines start a program as `archive_with` does, which may leave other files."""
    patch.setattr(vm, "agent_archive", lambda: archive_with(program))
    patch.setattr(vm, "result_bytes", lambda plan, cpus: _AnyName())


def cell_of(results: Path, name: str) -> Any:
    """Return what the agent wrote of a cell into a folder of results."""
    found: dict[str, Any] = json.loads((results / "cells" / f"{name}.json").read_text())
    return found
