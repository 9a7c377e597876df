# SPDX-License-Identifier: MIT
"""What a sweep measures: the blocks of each pathology on every kernel that runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from iolab.agent.plan import OpenJob
from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.errors import CannotRunError
from iolab.pathology.base import Machine, Pathology, Profile
from iolab.pathology.interventions import INTERVENTION, intervention
from iolab.store.raw import RawStore, block_key
from iolab.sweeps.request import Request, chosen_pathologies, requested_profile, sweep_label
from iolab.targets import Target
from iolab.targets.machines import real_target
from iolab.targets.real import RealTarget
from iolab.targets.vm import prepare
from iolab.vm.fio_check import check_job
from iolab.vm.image import ensure_image
from iolab.vm.toolbox import ensure_toolbox

__all__ = ["PathologyPlan", "plan_blocks", "plan_sweep"]


@dataclass
class PathologyPlan:
    """One pathology's part of a sweep.

    Parameters
    ----------
    pathology : Pathology
        What is measured.
    folder : Path
        Folder of its tables and pages.
    blocks : dict of str to Block
        The blocks by their key in the store.
    kernels : dict of str to str
        Each kernel that is measured, and where it comes from.
    unavailable : dict of str to str
        Each kernel that cannot run here, and why.
    """

    pathology: Pathology
    folder: Path
    blocks: dict[str, Block] = field(default_factory=dict)
    kernels: dict[str, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


def plan_sweep(request: Request, log: Callable[[str], None]) -> list[PathologyPlan]:
    """Plan the blocks of each pathology, after fetching the kernels they need.

    Parameters
    ----------
    request : Request
        A request that `iolab.sweeps.request.check_request` accepts.
    log : callable
        Called with a line for each step.

    Raises
    ------
    UserError
        If a pathology, a profile, a factor, a level or the real machine's name is unknown, or the
        disk or folder to measure on is refused.
    CannotRunError
        If no block can run here.
    """
    chosen = chosen_pathologies(request)
    return plan_blocks([(p, requested_profile(request, p)) for p in chosen], request, log)


def plan_blocks(
    chosen: Iterable[tuple[Pathology, Profile]], request: Request, log: Callable[[str], None]
) -> list[PathologyPlan]:
    """Plan the blocks of pathologies with these profiles, on the request's kernels and target.

    Parameters and errors are those of `plan_sweep`.
    """
    machine = None if request.target == "vm" else real_target(request.target)
    logged: set[str] = set()

    def log_once(line: str) -> None:
        # Each pathology asks for the same kernels.
        if line not in logged:
            logged.add(line)
            log(line)

    plans = []
    for pathology, profile in chosen:
        plan = PathologyPlan(pathology, request.root / pathology.name / sweep_label(request))
        if machine is None:
            _plan_virtual(plan, request, profile, log_once)
        else:
            _plan_real(plan, request, profile, machine)
        plans.append(plan)
    if not any(plan.blocks for plan in plans):
        reasons = dict.fromkeys(r for plan in plans for r in plan.unavailable.values())
        raise CannotRunError(f"no kernel can run here: {'; '.join(reasons)}")
    if machine is not None and request.place.named:
        _check_place(machine, RawStore(request.root), plans)
    return plans


def _plan_virtual(
    plan: PathologyPlan, request: Request, profile: Profile, log: Callable[[str], None]
) -> None:
    """Plan the blocks on every kernel that runs here; of alternatives, on the first that does."""
    # What every kernel needs comes first: if it cannot be had, one sentence says so.
    ensure_toolbox(log)
    ensure_image(log)
    for alternatives in [(k,) for k in request.kernels] or profile.kernels:
        for kernel in alternatives:
            if kernel in plan.kernels or kernel in plan.unavailable:
                continue
            try:
                _plan_kernel(plan, request, profile, kernel, log)
            except CannotRunError as error:
                plan.unavailable[kernel] = str(error)
                log(str(error))
                continue
            break


def _plan_kernel(
    plan: PathologyPlan,
    request: Request,
    profile: Profile,
    kernel: str,
    log: Callable[[str], None],
) -> None:
    """Plan the blocks on one kernel: all of them, or none if one cannot run here."""
    blocks = blocks_of(
        plan.pathology, profile, kernel=kernel, clock=request.clock, seed=request.seed
    )
    targets: dict[Machine, Target] = {}
    for machine in dict.fromkeys(block.machine for block in blocks):
        size = {"cpus": machine.cpus, "memory_mib": machine.memory_mib}
        targets[machine] = prepare(kernel, request.clock, log, **size)
    _check_jobs(blocks)
    identities = {machine: target.identity() for machine, target in targets.items()}
    plan.kernels[kernel] = next(iter(targets.values())).origin
    for block in blocks:
        plan.blocks[block_key(block, identities[block.machine])] = block


def _check_jobs(blocks: Iterable[Block]) -> None:
    """Let fio's own parser read each job that is not iolab's, before anything boots."""
    jobs: dict[str, OpenJob] = {}
    for cell in (cell for block in blocks for cell in block.plan.cells):
        for job in (cell.job, None if cell.antagonist is None else cell.antagonist.job):
            if isinstance(job, OpenJob):
                jobs.setdefault(repr(job.sections), job)
    for job in jobs.values():
        check_job(job)


def _plan_real(
    plan: PathologyPlan, request: Request, profile: Profile, machine: RealTarget
) -> None:
    """Plan the blocks that a real machine can run, as far as its survey says.

    A block stands for a boot there: nothing is rebooted.
    """
    identity = machine.identity()
    for block in blocks_of(
        plan.pathology, profile, kernel=machine.kernel, clock=request.clock, seed=request.seed
    ):
        try:
            agent_plan = replace(request.place.put(block.plan), hardware=True)
            reason = _why_not_there(block) or machine.lacks(agent_plan)
        except CannotRunError as error:
            reason = str(error)
        if reason:
            plan.unavailable[machine.kernel] = reason
            continue
        placed = replace(block, plan=agent_plan, target=request.target)
        plan.kernels[machine.kernel] = machine.origin
        plan.blocks[block_key(placed, identity)] = placed


def _why_not_there(block: Block) -> str:
    """Return why a real machine cannot be what a block's machine is, or ""."""
    if intervention(block.cells[0].condition[INTERVENTION]).cpus:
        return "the number of CPUs is a virtual machine's: a real one has those it has"
    return ""


def _check_place(machine: RealTarget, store: RawStore, plans: Iterable[PathologyPlan]) -> None:
    """Check the disk or folder before anything is begun: all blocks name the same."""
    blocks = (item for plan in plans for item in plan.blocks.items())
    missing = next((block for key, block in blocks if not store.has(key)), None)
    if missing is not None:
        machine.check(missing.plan)
