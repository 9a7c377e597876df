# SPDX-License-Identifier: MIT
"""What can run on this machine, what is missing, and the command that fixes it."""

from __future__ import annotations

import logging
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from icountvm.downloads import shown_uri
from icountvm.guest import kvm_boots
from icountvm.image import ensure_image
from icountvm.kbuild.tools import compiler, missing_tools
from icountvm.kernels import get_kernel, list_kernels
from icountvm.mirror import NoMirrorError, mirror_of
from icountvm.toolbox import ensure_toolbox
from iolab.paths import runs_dir
from iolab.sweeps.pool import default_jobs
from iolab_base.errors import IolabError
from iolab_base.files import cache_dir
from tracedat import free_bytes

_log = logging.getLogger(__name__)

_NEEDED_BYTES = 3 << 30
_NEEDED_MEMORY = 2 << 30


@dataclass(frozen=True)
class Check:
    """One check: what was examined, what was found, and what fixes it."""

    what: str
    good: bool
    found: str
    fix: str = ""
    # The default sweep, in virtual time, needs it.
    needed: bool = True


def _check(what: str, good: bool, found: str, fix: str, *, needed: bool = True) -> Check:
    return Check(what, good, found, "" if good else fix, needed)


def _program(name: str) -> Check:
    """Check a program that a sweep on this machine as a target needs."""
    fix = f"install this distribution's package of {name}"
    if shutil.which("apt-get"):
        fix = f"as root: apt-get install {name}"
    path = shutil.which(name)
    what = f"{name} (for this machine as a target)"
    return _check(what, path is not None, path or "not on PATH", fix, needed=False)


def _mirror() -> Check:
    what = "mirror of Debian"
    try:
        return Check(what, True, shown_uri(mirror_of("debian")), needed=False)
    except NoMirrorError as error:
        return Check(what, False, error.problem, error.fix, needed=False)
    except IolabError as error:
        return Check(what, False, str(error), needed=False)


def _space(folder: Path) -> Check:
    what = f"room in {folder}"
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(existing, os.W_OK):
        return Check(what, False, "may not be written", f"chown {existing}")
    free = shutil.disk_usage(existing).free
    fix = f"free {_NEEDED_BYTES / 1e9:.0f} GB on its disk"
    return _check(what, free >= _NEEDED_BYTES, f"{free / 1e9:.1f} GB free", fix)


def _tried(what: str, attempt: Callable[[], str], fix: str) -> Check:
    try:
        return Check(what, True, attempt())
    except IolabError as error:
        return Check(what, False, str(error), fix)


def _virtual_time() -> str:
    return ensure_toolbox().identity().partition(" sha256")[0] + ", counts instructions"


def _guest_image() -> str:
    ensure_toolbox()
    return f"sha256:{ensure_image().digest[:16]}"


def _kvm() -> Check:
    try:
        toolbox = ensure_toolbox()
        reason = kvm_boots(get_kernel("6.1"), ensure_image(), toolbox)
    except IolabError as error:
        reason = str(error)
    fix = "none is needed: clock=host falls back to the software CPU"
    found = reason or "a probe machine booted"
    return _check("KVM (for clock=host)", not reason, found, fix, needed=False)


def _kernel_builds() -> Check:
    what = "kernels from a source tree"
    lacking = missing_tools()
    if lacking is None:
        cached = ", ccache" if shutil.which("ccache") else ""
        return Check(what, True, f"{compiler()}, make, flex, bison, bc{cached}", needed=False)
    return Check(what, False, f"without {', '.join(lacking.names)}", lacking.fix, needed=False)


def examine() -> Iterator[Check]:
    """Yield checks one by one, fetching what the cache lacks."""
    machine, host = platform.machine(), "the virtual machines need an x86-64 host"
    yield _check("processor", machine == "x86_64", machine, host)
    yield _mirror()
    free, least = free_bytes(), "one virtual machine needs up to 2 GiB"
    found = f"{free / 1e9:.1f} GB available: {default_jobs()} virtual machines side by side"
    yield _check("memory", free >= _NEEDED_MEMORY, found, least)
    yield _space(cache_dir())
    yield _space(runs_dir())
    online = "check the network and the mirror of Debian"
    yield _tried("QEMU", _virtual_time, online)
    yield _tried("guest image", _guest_image, online)
    _log.info("looking for kernels in the cache and the archives")
    for kernel in list_kernels():
        found = kernel.reason or f"{kernel.state}: {kernel.source}"
        fix = f"iolab kernels add {kernel.name} VMLINUZ MODULES, or its .deb files"
        there = kernel.state != "unreachable"
        yield _check(f"kernel {kernel.name}", there, found, fix, needed=False)
    yield _kvm()
    yield _kernel_builds()
    yield _program("fio")
    yield _program("trace-cmd")
