# SPDX-License-Identifier: MIT
"""Kernel modules: loaded if need be, unloaded when all is put back."""

from __future__ import annotations

from pathlib import Path

from iolab.agent.journal import Journal
from iolab.errors import CannotRunError
from iolab.process import CommandError, run

__all__ = ["load_module"]


def load_module(journal: Journal, name: str, *parameters: str) -> None:
    """Load a kernel module unless it is there or built in; restoring unloads what was loaded.

    Errors: CannotRunError if this kernel has no such module; CommandError with modprobe's words.
    """
    folder = Path("/sys/module") / name.replace("-", "_")
    if folder.is_dir():
        return
    journal.note("module", str(folder), name)
    try:
        run(["modprobe", name, *parameters], timeout_s=120)
    except CommandError as error:
        if run(["modprobe", "-n", "-q", name], timeout_s=60, check=False).returncode:
            raise CannotRunError(f"this kernel has no module {name}") from error
        raise
