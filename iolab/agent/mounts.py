# SPDX-License-Identifier: MIT
"""What is mounted where."""

from __future__ import annotations

from pathlib import Path

__all__ = ["mounts"]


def mounts(kind: str) -> list[tuple[Path, list[str]]]:
    """Return where file systems of a kind are mounted, each with its options."""
    lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    words = [line.split() for line in lines]
    return [(Path(w[1]), w[3].split(",")) for w in words if w[2] == kind]
