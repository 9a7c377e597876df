# SPDX-License-Identifier: MIT
"""A virtual machine that runs a program of a test's own in the agent's place."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from iolab.targets.shipping import agent_archive

__all__ = ["IN_GUEST", "archive_with", "cell_of"]

IN_GUEST = Path(__file__).with_name("in_guest.py")


def archive_with(program: str) -> bytes:
    """Return the agent's archive with another program to start; the agent stands beside it."""
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(agent_archive())) as shipped,
        zipfile.ZipFile(stream, "w") as made,
    ):
        for name in shipped.namelist():
            made.writestr(name, program if name == "__main__.py" else shipped.read(name))
    return stream.getvalue()


def cell_of(results: Path, name: str) -> Any:
    """Return what the agent wrote of a cell into a folder of results."""
    found: dict[str, Any] = json.loads((results / "cells" / f"{name}.json").read_text())
    return found
