# SPDX-License-Identifier: MIT
"""What the kernel shows of itself in files that are there, or are not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["available_memory", "mounts", "text_of"]


def text_of(path: Path) -> str | None:
    """Return a file's text, stripped, or None where it cannot be read."""
    with suppress(OSError):
        return path.read_text(errors="replace").strip()
    return None


def available_memory() -> int:
    """Return the bytes of memory that programs can still have, as the kernel estimates them."""
    lines = (text_of(Path("/proc/meminfo")) or "").splitlines()
    return next((int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:")), 0)


def mounts(kind: str) -> list[tuple[Path, list[str]]]:
    """Return where file systems of a kind are mounted, each with its options."""
    lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    words = [line.split() for line in lines]
    return [(Path(w[1]), w[3].split(",")) for w in words if w[2] == kind]
