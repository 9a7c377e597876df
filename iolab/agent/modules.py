# SPDX-License-Identifier: MIT
"""Kernel modules: loaded if need be, unloaded when all is put back."""

from __future__ import annotations

import shutil
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.errors import CannotRunError
from iolab.process import run

__all__ = ["load_module"]

_MODULES = Path("/sys/module")
# What udev loads for a SCSI disk, and the crypto API for its checksums: modprobe knows nothing of
# either.
_BROUGHT_ALONG = {"sd_mod": ("sg", "crct10dif_generic", "crc64_rocksoft_generic")}


def _loaded(name: str) -> bool:
    return (_MODULES / name.replace("-", "_")).is_dir()


def load_module(journal: Journal, name: str, *parameters: str) -> None:
    """Load a kernel module unless it is there or built in; restoring unloads what was loaded.

    Errors: CannotRunError if this kernel has no such module; CommandError with modprobe's words.
    """
    if _loaded(name):
        return
    if shutil.which("modprobe") is None:
        raise CannotRunError(f"the module {name} cannot be loaded: there is no modprobe (kmod)")
    needed = run(["modprobe", "--show-depends", name], timeout_s=60, check=False)
    if needed.returncode:
        raise CannotRunError(f"this kernel has no module {name}")
    # Each by itself: modprobe -r would also take what was there, unused, before.
    files = [Path(x.split()[1]) for x in needed.stdout.splitlines() if x.startswith("insmod ")]
    names = [file.name.partition(".ko")[0].replace("-", "_") for file in files]
    others = dict.fromkeys([*names[:-1], *_BROUGHT_ALONG.get(name, ())])
    new = [other for other in others if not _loaded(other)]
    if new:
        journal.note("dependencies", str(_MODULES), " ".join(new))
    journal.note("module", str(_MODULES / name.replace("-", "_")), name)
    run(["modprobe", name, *parameters], timeout_s=120)
