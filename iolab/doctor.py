# SPDX-License-Identifier: MIT
"""What can run on this machine, what is missing, and what its kernels are and how two differ.

Scheduler and features are what a kernel reported when it was booted; preemption model and HZ are
known from its configuration before that.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from icountvm.downloads import shown_uri
from icountvm.guest import kvm_boots
from icountvm.image import ensure_image
from icountvm.kbuild.configuration import options_of
from icountvm.kbuild.tools import compiler, missing_tools
from icountvm.kernels import (
    Kernel,
    KernelStatus,
    cached_kernel,
    check_name,
    get_kernel,
    list_kernels,
)
from icountvm.mirror import NoMirrorError, mirror_of
from icountvm.toolbox import ensure_toolbox
from iolab.paths import runs_dir
from iolab.store.dataset import KernelBuild, build_of
from iolab.sweeps.pool import default_jobs
from iolab_base import foreign
from iolab_base.errors import IolabError, UserError
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
        return Check(what, False, "cannot be written", f"chown {existing}")
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


_FEATURES: Final = "features"


@dataclass(frozen=True)
class KernelDifference:
    """What two kernels differ in: "n" is an option off or unknown, "" a missing property."""

    what: str
    first: str
    second: str


def kernel_lines(status: KernelStatus) -> list[str]:
    """Return a kernel as a line, and one more for its scheduler's features if they are known."""
    if status.reason:
        return [f"{status.name:5} {status.state:13}{status.reason}"]
    document = kernel_document(status)
    scheduler = document["scheduler"] or "scheduler unknown until it is booted"
    hz = f"{document['hz']} Hz" if document["hz"] else ""
    parts = [status.release, status.source, scheduler, document["preemption"], hz]
    lines = [f"{status.name:5} {status.state:13}{', '.join(part for part in parts if part)}"]
    if features := document["features"]:
        lines.append(f"{'':19}{' '.join(features)}")
    return lines


def kernel_document(status: KernelStatus) -> dict[str, Any]:
    """Return a kernel as JSON values: its status, scheduler, preemption model, HZ and features."""
    kernel = cached_kernel(status.name) if status.state == "cached" else None
    facts = status.facts or {}
    build = _build(kernel, facts)
    return {
        "name": status.name,
        "state": status.state,
        "reason": status.reason,
        "source": status.source,
        "release": status.release,
        "scheduler": _scheduler(facts),
        "preemption": build.preemption,
        "hz": build.hz,
        "features": build.tunables.get(_FEATURES, "").split(),
        "facts": status.facts,
    }


def differences(
    first: str, second: str, facts: Mapping[str, Mapping[str, Any]]
) -> list[KernelDifference]:
    """Return how two cached kernels differ: in what each reported (`facts`), then in options."""
    kernels = [_cached(name) for name in (first, second)]
    one, other = (_properties(kernel, facts.get(kernel.name) or {}) for kernel in kernels)
    # A kernel that was never booted has no facts: only its configuration can be compared.
    booted = "scheduler" in one and "scheduler" in other
    names = [what for what in {**one, **other} if booted or (what in one and what in other)]
    found = [KernelDifference(what, one.get(what, ""), other.get(what, "")) for what in names]
    options, others = map(_options, kernels)
    found += [
        KernelDifference(name, options.get(name, "n"), others.get(name, "n"))
        for name in sorted(options.keys() | others.keys())
    ]
    return [each for each in found if each.first != each.second]


def _cached(name: str) -> Kernel:
    check_name(name)
    kernel = cached_kernel(name)
    if kernel is None:
        raise UserError(f"kernel {name} is not in the cache: run iolab kernels fetch {name}")
    return kernel


def _build(kernel: Kernel | None, facts: Mapping[str, Any]) -> KernelBuild:
    # A kernel that was never booted has no facts.
    options = options_of(kernel.config) if kernel and kernel.config else {}
    named = {name.removeprefix("CONFIG_"): value for name, value in options.items()}
    return build_of({**facts, "kernel_options": named})


def _scheduler(facts: Mapping[str, Any]) -> str:
    return foreign.line(str(facts.get("scheduler") or ""), foreign.SCHEDULER)


def _properties(kernel: Kernel, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return a kernel's properties other than its configuration, which has HZ."""
    build = _build(kernel, facts)
    found = {"release": kernel.release, "source": kernel.source}
    if build.preemption:
        found["preemption"] = build.preemption
    if scheduler := _scheduler(facts):
        found["scheduler"] = scheduler
        for feature in build.tunables.get(_FEATURES, "").split():
            name = feature.removeprefix("NO_")
            found[f"feature {name}"] = "on" if name == feature else "off"
        found |= {name: text for name, text in build.tunables.items() if name != _FEATURES}
    return found


def _options(kernel: Kernel) -> dict[str, str]:
    if kernel.config is None:
        raise UserError(
            f"kernel {kernel.name} has no known configuration: add it with its configuration"
        )
    return {name: foreign.line(value) for name, value in options_of(kernel.config).items()}
