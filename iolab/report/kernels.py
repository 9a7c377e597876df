# SPDX-License-Identifier: MIT
"""What the kernels of the cache are, and how two of them differ.

Scheduler and features are what a kernel reported when it was booted; preemption model and HZ are
known from its configuration before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from icountvm.kbuild.configuration import options_of
from icountvm.kernels import Kernel, KernelStatus, cached_kernel, check_name
from iolab.store.dataset import KernelBuild, build_of
from iolab_base import foreign
from iolab_base.errors import UserError

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
    scheduler = document["scheduler"] or "scheduler not known before it was booted"
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
    told = [_told(kernel, facts.get(kernel.name) or {}) for kernel in kernels]
    # A kernel that was never booted has no facts: only its configuration can be compared.
    both = all("scheduler" in one for one in told)
    names = [
        what for what in {**told[0], **told[1]} if both or (what in told[0] and what in told[1])
    ]
    found = [KernelDifference(what, told[0].get(what, ""), told[1].get(what, "")) for what in names]
    options = [_options(kernel) for kernel in kernels]
    found += [
        KernelDifference(name, options[0].get(name, "n"), options[1].get(name, "n"))
        for name in sorted(options[0].keys() | options[1].keys())
    ]
    return [one for one in found if one.first != one.second]


def _cached(name: str) -> Kernel:
    check_name(name)
    kernel = cached_kernel(name)
    if kernel is None:
        raise UserError(f"kernel {name} is not in the cache: type iolab kernels fetch {name}")
    return kernel


def _build(kernel: Kernel | None, facts: Mapping[str, Any]) -> KernelBuild:
    # A kernel that was never booted has no facts.
    options = options_of(kernel.config) if kernel and kernel.config else {}
    named = {name.removeprefix("CONFIG_"): value for name, value in options.items()}
    return build_of({**facts, "kernel_options": named})


def _scheduler(facts: Mapping[str, Any]) -> str:
    return foreign.line(str(facts.get("scheduler") or ""), foreign.SCHEDULER)


def _told(kernel: Kernel, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return a kernel's properties other than its configuration, which has HZ."""
    build = _build(kernel, facts)
    told = {"release": kernel.release, "source": kernel.source}
    if build.preemption:
        told["preemption"] = build.preemption
    if scheduler := _scheduler(facts):
        told["scheduler"] = scheduler
        for feature in build.tunables.get(_FEATURES, "").split():
            name = feature.removeprefix("NO_")
            told[f"feature {name}"] = "on" if name == feature else "off"
        told |= {name: text for name, text in build.tunables.items() if name != _FEATURES}
    return told


def _options(kernel: Kernel) -> dict[str, str]:
    if kernel.config is None:
        raise UserError(
            f"the configuration of kernel {kernel.name} is not known: add it with its configuration"
        )
    return {name: foreign.line(value) for name, value in options_of(kernel.config).items()}
