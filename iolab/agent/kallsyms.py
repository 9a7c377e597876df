# SPDX-License-Identifier: MIT
"""Keep the text of /proc/kallsyms, which trace-cmd reads twice for each recording.

The kernel prints that file anew each time: 4 MB, 0.2 s of a core on counted instructions. In a
virtual machine a copy in memory is mounted over it, and made again when other modules are loaded.
"""

from __future__ import annotations

from pathlib import Path

from iolab_base.process import run

__all__ = ["keep_kallsyms", "refresh_kallsyms"]

_KALLSYMS = Path("/proc/kallsyms")
_MODULES = Path("/proc/modules")
_COPY = Path("/run/iolab-kallsyms")
_COPY_MODULES = Path("/run/iolab-kallsyms.modules")


def _modules() -> str:
    """Return name and address of each loaded module."""
    lines = [line.split() for line in _MODULES.read_text().splitlines()]
    return "".join(f"{words[0]} {words[5]}\n" for words in lines)


def keep_kallsyms() -> None:
    """Mount a copy over /proc/kallsyms, for good: the machine is thrown away."""
    _COPY.write_bytes(_KALLSYMS.read_bytes())
    _COPY_MODULES.write_text(_modules())
    run(["mount", "-o", "bind", _COPY, _KALLSYMS], timeout_s=60)


def refresh_kallsyms() -> None:
    """Make the copy again if other modules are loaded by now; without a copy do nothing."""
    if _COPY_MODULES.exists() and _COPY_MODULES.read_text() != _modules():
        run(["umount", _KALLSYMS], timeout_s=60)
        keep_kallsyms()
