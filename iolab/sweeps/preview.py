# SPDX-License-Identifier: MIT
"""What a sweep in virtual machines would measure or has measured, without booting or fetching."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fiojobs import Row
from icountvm.catalogue import CATALOGUE
from icountvm.kernels import cached_kernel
from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology import get_pathology
from iolab.pathology.base import Pathology
from iolab.pathology.factors import Condition
from iolab.store.raw import RawStore
from iolab.sweeps.durations import Forecast, forecast
from iolab.sweeps.request import (
    Request,
    check_request,
    chosen_pathologies,
    plan_blocks,
    requested_profile,
    sweep_label,
)
from iolab_base.errors import CannotRunError, UserError


@dataclass(frozen=True)
class KernelPreview:
    """What would be measured on one kernel, "cached" or "to fetch"."""

    kernel: str
    state: str
    alternatives: tuple[str, ...]
    blocks: int
    cells: int
    recorded: int


@dataclass(frozen=True)
class PathologyPreview:
    """What a sweep would measure for one pathology."""

    pathology: str
    title: str
    treatment: str
    folder: str
    factors: dict[str, list[int | str | None]]
    kernels: list[KernelPreview]
    unavailable: dict[str, str]
    undecided: dict[str, str]
    duration: Forecast
    # What became of a fio job of the user's own.
    translation: tuple[Row, ...] = ()


def preview_sweep(request: Request) -> list[PathologyPreview]:
    """Return what a sweep in virtual machines would measure for each pathology."""
    # Reads only the cache and the store; the first alternative kernel counts, reachable or not.
    check_request(request)
    if request.target != "vm":
        raise UserError(
            "--dry-run is for virtual machines: what runs on a real one is known when it is asked"
        )
    RawStore(request.root).check_format()
    return [_preview(request, pathology) for pathology in chosen_pathologies(request)]


def _preview(request: Request, pathology: Pathology) -> PathologyPreview:
    profile = requested_profile(request, pathology)
    kernels: list[KernelPreview] = []
    unavailable: dict[str, str] = {}
    conditions: list[Condition] = []
    planned: list[Block] = []
    for alternatives in [(k,) for k in request.kernels] or profile.kernels:
        wanted = [k for k in alternatives if k not in {known.kernel for known in kernels}]
        reasons = {kernel: _obstacle(kernel) for kernel in wanted}
        unavailable |= {kernel: reason for kernel, reason in reasons.items() if reason}
        # A sweep tries them in the order of the profile.
        possible = [kernel for kernel in wanted if not reasons[kernel]]
        if not possible:
            continue
        kernel, *others = possible
        blocks = blocks_of(
            pathology, profile, kernel=kernel, clock=request.clock, seed=request.seed
        )
        planned += blocks
        cells = [cell for block in blocks for cell in block.cells]
        conditions += [cell.condition for cell in cells]
        kernels.append(
            KernelPreview(
                kernel=kernel,
                state="to fetch" if cached_kernel(kernel) is None else "cached",
                alternatives=tuple(others),
                blocks=len(blocks),
                cells=len(cells),
                recorded=sum(cell.recorded for cell in cells),
            )
        )
    return PathologyPreview(
        pathology=pathology.name,
        title=pathology.title,
        treatment=pathology.treatment,
        folder=str(request.root / pathology.name / sweep_label(request)),
        factors={name: _levels(conditions, name) for name in pathology.factors},
        kernels=kernels,
        unavailable=unavailable,
        undecided={c.name: c.requires for c in pathology.claims if c.requires},
        duration=forecast(planned, request.jobs),
        translation=pathology.translation,
    )


def _obstacle(kernel: str) -> str:
    """Return why a kernel cannot run here, as far as this machine alone can know, or ""."""
    if platform.machine() != "x86_64":
        return f"the virtual machines need an x86-64 host, this is {platform.machine()}"
    if kernel not in CATALOGUE and cached_kernel(kernel) is None:
        return "damaged in the cache: add it again"
    return ""


def _levels(conditions: Sequence[Condition], name: str) -> list[int | str | None]:
    levels = {condition[name] for condition in conditions}
    return sorted(levels, key=lambda v: (v is not None, isinstance(v, str), v))


@dataclass(frozen=True)
class SweepStatus:
    """What is measured of one pathology on one kernel and the seconds left, or why nothing is."""

    pathology: str
    kernel: str
    blocks: int
    blocks_measured: int
    cells: int
    cells_measured: int
    seconds_left: float
    reason: str = ""


def sweep_status(request: Request) -> list[SweepStatus]:
    """Return what a sweep in virtual machines has measured, for each pathology and kernel."""
    # Counts blocks of this agent, kernel, image and QEMU; `iolab fsck` checks their integrity.
    # Fetches and boots no kernel.
    rows = []
    for preview in preview_sweep(request):
        rows += [_status(request, preview, kernel) for kernel in preview.kernels]
        rows += [
            SweepStatus(preview.pathology, kernel, 0, 0, 0, 0, 0.0, reason)
            for kernel, reason in preview.unavailable.items()
        ]
    return rows


def _status(request: Request, preview: PathologyPreview, kernel: KernelPreview) -> SweepStatus:
    """Return what is measured of a pathology on one kernel."""
    measured: list[int] = []
    reason = ""
    if kernel.state == "cached":
        pathology = get_pathology(preview.pathology)
        one = replace(request, kernels=[kernel.kernel])
        try:
            (plan,) = plan_blocks([(pathology, requested_profile(request, pathology))], one)
        except CannotRunError as error:
            reason = str(error)
        else:
            store = RawStore(request.root)
            measured = [len(b.cells) for key, b in plan.blocks.items() if store.has(key)]
    cells_left = 0 if reason else kernel.cells - sum(measured)
    side_by_side = max(1, min(request.jobs, kernel.blocks - len(measured)))
    return SweepStatus(
        pathology=preview.pathology,
        kernel=kernel.kernel,
        blocks=kernel.blocks,
        blocks_measured=len(measured),
        cells=kernel.cells,
        cells_measured=sum(measured),
        seconds_left=preview.duration.seconds_per_cell * cells_left / side_by_side,
        reason=reason,
    )
