# SPDX-License-Identifier: MIT
"""Progress of a sweep: which of its blocks are in the store, and how long the others take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from iolab.errors import CannotRunError
from iolab.store.raw import RawStore
from iolab.sweeps.planning import plan_blocks
from iolab.sweeps.preview import PathologyPreview, preview_sweep
from iolab.sweeps.request import Request, chosen_pathologies, requested_profile

__all__ = ["KernelStatus", "sweep_status"]


@dataclass(frozen=True)
class KernelStatus:
    """What is measured of one pathology on one kernel.

    Parameters
    ----------
    pathology, kernel : str
        Their names.
    blocks, blocks_measured : int
        Blocks of the sweep, and how many of them are in the store.
    cells, cells_measured : int
        Likewise their cells.
    seconds_left : float
        For the other blocks, `Request.jobs` of them side by side.
    reason : str
        Why nothing can be measured there, or "".
    """

    pathology: str
    kernel: str
    blocks: int
    blocks_measured: int
    cells: int
    cells_measured: int
    seconds_left: float
    reason: str = ""


def sweep_status(
    request: Request, log: Callable[[str], None] = lambda line: None
) -> list[KernelStatus]:
    """Return what a sweep in virtual machines has measured, for each pathology and kernel.

    A block counts if this agent, on this kernel, image and QEMU, measured it. No kernel is fetched
    and nothing is booted. `iolab fsck` tells whether the blocks are sound.

    Raises
    ------
    UserError
        As `iolab.sweeps.preview.preview_sweep` does.
    CannotRunError
        If the tools of the virtual machines cannot be had.
    """
    store = RawStore(request.root)
    rows = []
    previews = {preview.pathology: preview for preview in preview_sweep(request)}
    for pathology in chosen_pathologies(request):
        preview, profile = previews[pathology.name], requested_profile(request, pathology)
        for kernel in preview.kernels:
            measured: list[int] = []
            blocks, cells, reason = kernel.blocks, kernel.cells, ""
            if kernel.state == "cached":
                one = replace(request, kernels=[kernel.kernel])
                try:
                    (plan,) = plan_blocks([(pathology, profile)], one, log)
                except CannotRunError as error:
                    reason = str(error)
                else:
                    there = (b for key, b in plan.blocks.items() if store.has(key))
                    measured = [len(block.cells) for block in there]
            rows.append(
                KernelStatus(
                    pathology=pathology.name,
                    kernel=kernel.kernel,
                    blocks=blocks,
                    blocks_measured=len(measured),
                    cells=cells,
                    cells_measured=sum(measured),
                    seconds_left=0.0
                    if reason
                    else _left(request, preview, blocks - len(measured), cells - sum(measured)),
                    reason=reason,
                )
            )
        rows += [
            KernelStatus(pathology.name, kernel, 0, 0, 0, 0, 0.0, reason)
            for kernel, reason in preview.unavailable.items()
        ]
    return rows


def _left(request: Request, preview: PathologyPreview, blocks: int, cells: int) -> float:
    """Return the seconds that some blocks take, as many machines side by side as there are jobs."""
    side_by_side = max(1, min(request.jobs, blocks))
    return preview.duration.seconds_per_cell * cells / side_by_side
