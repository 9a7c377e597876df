# SPDX-License-Identifier: MIT
"""Loop devices that stand for a machine's disks."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import lack, need


@contextmanager
def loop_device(image: Path, mib: int) -> Iterator[Path]:
    """Make a loop device of some MiB of zeros; the test is skipped where that is not allowed."""
    with image.open("wb") as stream:
        stream.truncate(mib << 20)
    argv = ["losetup", "--find", "--show", "--partscan", str(image)]
    need("losetup")
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    if made.returncode:
        lack("loop devices", made.stderr.strip())
    node = Path(made.stdout.strip())
    try:
        yield node
    finally:
        subprocess.run(["losetup", "-d", node], check=True)


def digest(node: Path) -> str:
    """Return the SHA-256 (hex) of all that is on a disk."""
    return hashlib.sha256(node.read_bytes()).hexdigest()
