# SPDX-License-Identifier: MIT
"""How the kernels of a data set are built and booted: preemption model, HZ, scheduler settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from iolab_agent.settings import preemption_models
from iolab_base import foreign
from iolab_base.errors import UserError

# Options of kernel/Kconfig.preempt and their models, the strongest first.
_MODELS: Final = (
    ("PREEMPT_RT", "rt"),
    ("PREEMPT_LAZY", "lazy"),
    ("PREEMPT", "full"),
    ("PREEMPT_VOLUNTARY", "voluntary"),
    ("PREEMPT_NONE", "none"),
)
_HZ: Final = re.compile(r"\d{1,6}")


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


def build_of(facts: Mapping[str, Any]) -> KernelBuild:
    """Return how a kernel was built and booted, from a block's facts."""
    # What the kernel reports takes precedence: ``preempt=`` on its command line overrides its
    # configuration, which is not known in results of earlier releases.
    tunables = {str(k): str(v) for k, v in (facts.get("scheduler_tunables") or {}).items()}
    options = dict(facts.get("kernel_options") or {})
    hz = str(options.get("HZ", ""))
    in_use = foreign.line(preemption_models(tunables.pop("preempt", ""))[0], foreign.SCHEDULER)
    built_in = next((model for name, model in _MODELS if options.get(name) == "y"), "")
    return KernelBuild(
        version=foreign.line(str(facts.get("kernel_version") or "")),
        preemption=in_use or built_in,
        hz=int(hz) if _HZ.fullmatch(hz) else None,
        tunables={name: foreign.line(value) for name, value in sorted(tunables.items())},
    )


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
