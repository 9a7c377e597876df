# SPDX-License-Identifier: MIT
"""Where a cell's work, or its antagonist, is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ANTAGONIST_FOLDER", "RUN", "Workplace"]

# The agent's folder in memory.
RUN = Path("/run/iolab")
# Name of the folder of an antagonist's files, below that of the work.
ANTAGONIST_FOLDER = "antagonist"


@dataclass(frozen=True)
class Workplace:
    """Files, device, core and cgroup of the work.

    Parameters
    ----------
    files : list of Path
        What the processes of a job or the copies read or write, one each.
    folder : Path
        Where a program runs; made if missing.
    device : Path or None
        Node of the device beneath.
    cpu : int
        The core that the work is pinned to, unless it names its own.
    group : Path or None
        Folder of its cgroup; None leaves it in the agent's own.
    """

    files: list[Path]
    folder: Path
    device: Path | None
    cpu: int
    group: Path | None
