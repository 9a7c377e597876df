# SPDX-License-Identifier: MIT
"""Load kernel modules; restoring unloads them."""

from __future__ import annotations

import shutil
from pathlib import Path

from iolab.agent.journal import Journal
from iolab_base.errors import CannotRunError
from iolab_base.process import run

__all__ = ["load_module"]

_MODULES = Path("/sys/module")
# Modules that follow a module without being its dependencies: udev loads sg for a SCSI disk, and
# the crypto API loads the implementations of its checksums (lib/crc-t10dif.c; lib/crc64-rocksoft.c
# of Linux commit f3813f4b287e).
_FOLLOWERS = {"sd_mod": ("sg", "crct10dif_generic", "crc64_rocksoft_generic")}


def _loaded(name: str) -> bool:
    return (_MODULES / name.replace("-", "_")).is_dir()


def load_module(journal: Journal, name: str, *parameters: str) -> None:
    """Load a kernel module unless it is loaded or built in; restoring unloads it.

    Restoring also unloads the dependencies that were loaded with it. Raises CannotRunError if this
    kernel has no such module, or the machine has no modprobe.
    """
    if _loaded(name):
        return
    if shutil.which("modprobe") is None:
        raise CannotRunError(f"the module {name} cannot be loaded: there is no modprobe (kmod)")
    shown = run(["modprobe", "--show-depends", name], timeout_s=60, check=False)
    if shown.returncode:
        raise CannotRunError(f"this kernel has no module {name}")
    # Each is noted by name: modprobe -r would also unload unused modules that were loaded before.
    files = [Path(x.split()[1]) for x in shown.stdout.splitlines() if x.startswith("insmod ")]
    names = [file.name.partition(".ko")[0].replace("-", "_") for file in files]
    others = dict.fromkeys([*names[:-1], *_FOLLOWERS.get(name, ())])
    new = [other for other in others if not _loaded(other)]
    if new:
        journal.note("dependencies", str(_MODULES), " ".join(new))
    folder = _MODULES / name.replace("-", "_")
    journal.note("module", str(folder), name)
    run(["modprobe", name, *parameters], timeout_s=120)
    # Each loaded module has an inode of its own there; an alias has none.
    if folder.is_dir():
        journal.note("module", str(folder), f"{name} {folder.stat().st_ino}")
