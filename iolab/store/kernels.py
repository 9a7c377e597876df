# SPDX-License-Identifier: MIT
"""How the kernels of a data set are built and booted: preemption model, HZ, scheduler settings."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from icountvm.bzimage import KERNEL_NAME
from icountvm.kernels import cached_kernel
from iolab.agent.scheduler import preemption_models
from iolab_base import foreign
from iolab_base.errors import UserError

__all__ = ["KernelBuild", "build_of", "kernel_config", "merge_builds", "read_builds"]

# Options of kernel/Kconfig.preempt and their models, the strongest first.
_MODELS: Final = (
    ("PREEMPT_RT", "rt"),
    ("PREEMPT_LAZY", "lazy"),
    ("PREEMPT", "full"),
    ("PREEMPT_VOLUNTARY", "voluntary"),
    ("PREEMPT_NONE", "none"),
)


@dataclass(frozen=True)
class KernelBuild:
    """How a kernel was built and booted."""

    # The version is that of ``uname -v``: the distribution's package, the compile-time preemption.
    # The preemption model in use is "none", "voluntary", "full", "lazy" or "rt", with commas
    # between those of several boots, or "" if unknown. `hz` is CONFIG_HZ, None if unknown.
    # `tunables` are the scheduler's tunables and features by file name, as the kernel booted.

    version: str = ""
    preemption: str = ""
    hz: int | None = None
    tunables: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the build as JSON values."""
        return {**asdict(self), "tunables": dict(self.tunables)}


def build_of(facts: Mapping[str, Any], config: str) -> KernelBuild:
    """Return how a kernel was built and booted, from a block's facts and its configuration."""
    # The facts take precedence: ``preempt=`` on the kernel's command line overrides its
    # configuration, which is "" if unknown.
    tunables = {str(k): str(v) for k, v in (facts.get("scheduler_tunables") or {}).items()}
    hz = re.search(r"^CONFIG_HZ=(\d{1,6})$", config, re.MULTILINE)
    in_use = tunables.pop("preempt", "")
    return KernelBuild(
        version=foreign.line(str(facts.get("kernel_version") or "")),
        preemption=_preemption(in_use, config),
        hz=int(hz[1]) if hz else None,
        tunables={name: foreign.line(value) for name, value in sorted(tunables.items())},
    )


def _preemption(in_use: str, config: str) -> str:
    if model := preemption_models(in_use)[0]:
        return foreign.line(model, foreign.SCHEDULER)
    lines = set(config.splitlines())
    return next((model for name, model in _MODELS if f"CONFIG_{name}=y" in lines), "")


def kernel_config(kernel: str, release: str, target: Mapping[str, Any]) -> str:
    """Return the configuration of a measured kernel, or "" if this machine does not have it."""
    # A virtual machine's kernel has it in the cache, this machine's kernel in /boot or /proc.
    if target.get("target") == "vm":
        # The name becomes part of a path.
        cached = cached_kernel(kernel) if KERNEL_NAME.fullmatch(kernel) else None
        if cached is None or cached.identity != target.get("kernel") or cached.config is None:
            return ""
        return cached.config.read_text(errors="replace")
    if target.get("target") != "local" or os.uname().release != release:
        return ""
    try:
        return Path(f"/boot/config-{release}").read_text(errors="replace")
    except OSError:
        pass
    try:
        # CONFIG_IKCONFIG_PROC
        return gzip.decompress(Path("/proc/config.gz").read_bytes()).decode(errors="replace")
    except (OSError, EOFError):
        return ""


def merge_builds(builds: Iterable[KernelBuild]) -> KernelBuild:
    """Return one kernel's build in several boots: all versions, and the tunables in common."""
    found = list(builds)
    rates = {build.hz for build in found}
    common = dict(found[0].tunables)
    for build in found[1:]:
        common = {k: v for k, v in common.items() if build.tunables.get(k) == v}
    return KernelBuild(
        version=", ".join(sorted({build.version for build in found})),
        preemption=", ".join(sorted({build.preemption for build in found})),
        hz=rates.pop() if len(rates) == 1 else None,
        tunables=common,
    )


def read_builds(path: Path) -> dict[str, KernelBuild]:
    """Read each kernel's build from a folder's ``kernels.json``; older results lack it: {}."""
    try:
        document = foreign.read_document(path, below=path.parent)
    except FileNotFoundError:
        return {}
    try:
        return {foreign.line(name, foreign.NAME): _build(b) for name, b in document.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: is no mapping of kernels to their builds") from error


def _build(document: Mapping[str, Any]) -> KernelBuild:
    hz, tunables = document["hz"], document["tunables"]
    if not (hz is None or type(hz) is int):
        raise ValueError(json.dumps(hz))
    return KernelBuild(
        version=foreign.line(str(document["version"])),
        preemption=foreign.line(str(document["preemption"]), foreign.LINE),
        hz=hz,
        tunables={foreign.line(k): foreign.line(str(v)) for k, v in tunables.items()},
    )
