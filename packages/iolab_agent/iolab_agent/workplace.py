# SPDX-License-Identifier: MIT
"""Where a cell's work, or its antagonist, is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# The agent's folder in memory.
RUN = Path("/run/iolab")
# Name of the folder of an antagonist's files, below that of the work.
ANTAGONIST_FOLDER = "antagonist"


@dataclass(frozen=True)
class Workplace:
    """Files, device, core and cgroup of the work.

    ``files``: one for each process of a job or the copies. ``nodes``: of all the cell's devices.
    ``folder``: where a program runs; made if missing. ``cpu``: the core, unless the work names its
    own. Without a ``group`` the work stays in the agent's own cgroup.
    """

    files: list[Path]
    folder: Path
    device: Path | None
    cpu: int
    group: Path | None
    nodes: list[Path] = field(default_factory=list)
