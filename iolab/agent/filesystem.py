# SPDX-License-Identifier: MIT
"""File systems made fresh on devices that the agent made itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.plan import FileSystem
from iolab.process import run

__all__ = ["make_filesystem"]


def make_filesystem(
    journal: Journal, filesystem: FileSystem, nodes: Mapping[str, Path], folder: Path
) -> None:
    """Make a file system on `nodes` (device name → node) and mount it at `folder`.

    Errors: CommandError with the words of mkfs or mount.
    """
    node = nodes[filesystem.device]
    options: list[str] = []
    if filesystem.kind == "ext4":
        # What mke2fs leaves for later the kernel does while the job is measured.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        run(["mkfs.ext4", "-q", "-F", "-E", lazy, node], timeout_s=300)
    else:
        # -K: nothing to discard on a device that was made a moment ago.
        argv = ["mkfs.xfs", "-q", "-f", "-K"]
        if filesystem.realtime_device is not None:
            realtime = str(nodes[filesystem.realtime_device])
            argv += ["-d", "rtinherit=1", "-r", f"rtdev={realtime}"]
            options = ["-o", f"rtdev={realtime}"]
        run([*argv, node], timeout_s=300)
    journal.note("rmdir", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    journal.note("umount", str(folder), "users")
    run(["mount", "-t", filesystem.kind, *options, node, folder], timeout_s=60)
