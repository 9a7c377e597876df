# SPDX-License-Identifier: MIT
"""What a sweep in virtual machines would measure, without booting, fetching or measuring."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.errors import UserError
from iolab.pathology.base import Pathology, Profile
from iolab.pathology.factors import Condition
from iolab.store.durations import BlockDuration, block_durations
from iolab.store.raw import RawStore
from iolab.sweeps.durations import forecast
from iolab.sweeps.request import (
    Request,
    check_request,
    chosen_pathologies,
    requested_profile,
    sweep_label,
)
from iolab.vm.catalogue import CATALOGUE
from iolab.vm.kernels import cached_kernel

__all__ = [
    "DurationEstimate",
    "KernelPreview",
    "PathologyPreview",
    "preview_sweep",
]


@dataclass(frozen=True)
class KernelPreview:
    """What would be measured on one kernel.

    Parameters
    ----------
    kernel : str
        Its name.
    state : {"cached", "to fetch"}
        Whether it is in the cache.
    alternatives : tuple of str
        Kernels that are measured instead if it cannot be fetched, in this order.
    blocks, cells, recorded : int
        Blocks (one boot each), cells, and how many of the cells are traced.
    """

    kernel: str
    state: str
    alternatives: tuple[str, ...]
    blocks: int
    cells: int
    recorded: int


@dataclass(frozen=True)
class DurationEstimate:
    """How long the measuring takes.

    Parameters
    ----------
    seconds : float
        For all blocks, `Request.jobs` of them side by side.
    seconds_per_cell : float
        Mean over the cells, of one virtual machine.
    basis : str
        What the estimate rests on, in words.
    """

    seconds: float
    seconds_per_cell: float
    basis: str


@dataclass(frozen=True)
class PathologyPreview:
    """What a sweep would measure of one pathology.

    Parameters
    ----------
    pathology, title, treatment : str
        Its name, its title, and the factor whose levels are compared with the control.
    folder : str
        Where its results go.
    factors : dict of str to list
        Levels of each factor in these cells; None is the control.
    kernels : list of KernelPreview
        In the order of measuring.
    unavailable : dict of str to str
        Each kernel that cannot run here, and why.
    undecided : dict of str to str
        Each claim that this kind of machine cannot decide, and why.
    duration : DurationEstimate
        The time it takes.
    """

    pathology: str
    title: str
    treatment: str
    folder: str
    factors: dict[str, list[int | str | None]]
    kernels: list[KernelPreview]
    unavailable: dict[str, str]
    undecided: dict[str, str]
    duration: DurationEstimate


def preview_sweep(request: Request) -> list[PathologyPreview]:
    """Return what a sweep in virtual machines would measure of each pathology.

    Only the cache and the store are read. Of alternative kernels the first is counted: whether its
    archive can be reached is not asked.

    Raises
    ------
    UserError
        As `iolab.sweeps.sweep.run_sweep` does for the same request, if it is for a real machine, if
        the agent would refuse a cell, or if the store is of another format.
    """
    check_request(request)
    if request.target != "vm":
        raise UserError(
            "--dry-run is for virtual machines: what runs on a real one is known when it is asked"
        )
    RawStore(request.root).check_format()
    chosen = chosen_pathologies(request)
    profiles = [requested_profile(request, pathology) for pathology in chosen]
    durations = block_durations(request.root)
    return [
        _preview(request, pathology, profile, durations)
        for pathology, profile in zip(chosen, profiles, strict=True)
    ]


def _preview(
    request: Request,
    pathology: Pathology,
    profile: Profile,
    durations: Sequence[BlockDuration],
) -> PathologyPreview:
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
        duration=_estimate(request, pathology, profile, planned, durations),
    )


def _obstacle(kernel: str) -> str:
    """Return why a kernel cannot run here, as far as this machine alone tells, or ""."""
    if platform.machine() != "x86_64":
        return f"the virtual machines need an x86-64 host, this is {platform.machine()}"
    if kernel not in CATALOGUE and cached_kernel(kernel) is None:
        return "damaged in the cache: add it again"
    return ""


def _levels(conditions: Sequence[Condition], name: str) -> list[int | str | None]:
    levels = {condition[name] for condition in conditions}
    return sorted(levels, key=lambda v: (v is not None, isinstance(v, str), v))


def _estimate(
    request: Request,
    pathology: Pathology,
    profile: Profile,
    planned: Sequence[Block],
    durations: Sequence[BlockDuration],
) -> DurationEstimate:
    """Return the time of all blocks.

    It rests on what this machine measured; else on equal blocks in the store, which another one may
    have measured; else on an assumption.
    """
    cells = sum(len(block.cells) for block in planned)
    expected = forecast(planned, request.jobs)
    each = expected.block_seconds / max(1, cells)
    forecasted = DurationEstimate(expected.seconds, each, expected.basis)
    if expected.known:
        return forecasted
    equal = [
        d
        for d in durations
        if (d.pathology, d.clock, d.target, d.runtime_ms)
        == (pathology.name, request.clock, "vm", profile.runtime_ms)
    ]
    if not (measured := sum(d.cells for d in equal)):
        return forecasted
    per_cell = sum(d.wall_s for d in equal) / measured
    basis = f"measured: {len(equal)} such blocks in {request.root}"
    side_by_side = max(1, min(request.jobs, len(planned)))
    return DurationEstimate(per_cell * cells / side_by_side, per_cell, basis)
