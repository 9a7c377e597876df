# SPDX-License-Identifier: MIT
"""What a user requests of a sweep, checked, and the blocks to measure for it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from icountvm.guest import check_clock
from icountvm.guest_programs import guest_program
from icountvm.image import cached_image, ensure_image
from icountvm.kernels import check_name
from icountvm.toolbox import ensure_toolbox
from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology import named_pathologies, pathologies
from iolab.pathology.base import TREATED_KERNEL, Pathology, Profile
from iolab.pathology.expressions import override
from iolab.pathology.factors import INTERVENTION, Condition, Grid, intervention
from iolab.paths import runs_dir
from iolab.store.counters import column_types
from iolab.store.raw import RawStore, block_key
from iolab.sweeps.pool import default_jobs
from iolab.targets import real_target, target_of
from iolab.targets.place import Place
from iolab.targets.real import RealTarget
from iolab_agent.fio import fio_argv, job_files
from iolab_agent.plan import FioJob, OpenJob
from iolab_agent.workplace import Workplace
from iolab_base.errors import CannotRunError, UserError
from iolab_base.names import one_of
from iolab_base.process import Result, run

_log = logging.getLogger(__name__)

# More than any interval needs; a typo would fill the disk.
_MOST_BOOTS = 1000
_SCHEDULER = re.compile(r"(tcp|tls|ucx|ws|wss)://[^\s/]+:[0-9]{1,5}")


@dataclass(frozen=True)
class Request:
    """What the user asked for; empty `kernels` and `boots` None stand for the profile's."""

    # `profile` is "smoke", "quick", "full", "study", "survey" or a pathology's own. `pathologies`
    # are names or files; empty: all known ones with the profile and every factor that is set.
    # `settings` and `recorded` are ``FACTOR=LEVEL[,LEVEL...]``: levels to measure instead of the
    # profile's, and to trace; `observed` likewise, or "all". `calls` are kernel functions recorded
    # call by call, `flat` profiles without callers. `target` is "vm", "local" or
    # ``ssh://user@host[:port]``, `place` a real machine's disk or folder, `cluster` a Dask
    # scheduler's address or "". `index` names the page that leads to all others; "" is the label.

    profile: str
    pathologies: Sequence[str] = ()
    kernels: Sequence[str] = ()
    settings: Sequence[str] = ()
    recorded: Sequence[str] = ()
    observed: Sequence[str] = ()
    calls: Sequence[str] = ()
    flat: bool = False
    boots: int | None = None
    seed: int = 0
    clock: str = "virtual"
    jobs: int = 1
    root: Path = field(default_factory=runs_dir)
    target: str = "vm"
    place: Place = field(default_factory=Place)
    cluster: str = ""
    index: str = ""


def request_for(
    profile: str,
    *,
    target: str = "vm",
    clock: str | None = None,
    jobs: int | None = None,
    root: Path | str | None = None,
    **more: Any,
) -> Request:
    """Return a request, by default on the target's clock, for as many machines as fit here."""
    clock = clock or ("virtual" if target == "vm" else "host")
    jobs = default_jobs(clock) if jobs is None else jobs
    folder = Path(root or runs_dir()).resolve()
    return Request(profile, target=target, clock=clock, jobs=jobs, root=folder, **more)


def check_request(request: Request) -> None:
    """Check that a request's options exist and go together, without asking another machine."""
    if request.jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {request.jobs}")
    if request.boots is not None and not 1 <= request.boots <= _MOST_BOOTS:
        raise UserError(f"--boots must be 1-{_MOST_BOOTS}, not {request.boots}")
    if request.seed < 0:
        raise UserError(f"--seed must be 0 or more, not {request.seed}")
    check_clock(request.clock)
    if request.target == "vm" and request.clock == "host" and request.jobs != 1:
        raise UserError("on the host's clock blocks run one at a time, undisturbed: omit --jobs")
    for option, given in (("--calls", request.calls), ("--flat", request.flat)):
        if given and not request.observed:
            raise UserError(f"{option} needs observed cells: name them with --observe")
    _check_cluster(request)
    if request.target == "vm":
        if request.place.label:
            raise UserError("--directory, --destroy and --make need a real machine (--target)")
        for kernel in request.kernels:
            check_name(kernel)
        return
    if request.kernels:
        raise UserError("omit --kernel: a real machine is measured with its own kernel")
    if request.clock != "host":
        raise UserError("a real machine has no virtual clock: omit --clock")
    if request.jobs != 1:
        raise UserError("a real machine measures one block at a time: omit --jobs")


def _check_cluster(request: Request) -> None:
    if not request.cluster:
        return
    if not _SCHEDULER.fullmatch(request.cluster):
        raise UserError(
            f"--cluster must be a scheduler's address, tcp://HOST:PORT, not {request.cluster!r}"
        )
    if request.target != "vm":
        raise UserError("a cluster measures only virtual machines: omit --target")
    if request.observed:
        raise UserError(
            "a cluster cannot observe: omit --observe, and observe here afterwards; measured "
            "blocks are kept"
        )


def chosen_pathologies(request: Request) -> list[Pathology]:
    """Return the requested pathologies: by name or file, else all that have the factors."""
    if request.pathologies:
        chosen = named_pathologies(request.pathologies)
    else:
        known = pathologies().values()
        named = [s.partition("=")[0] for s in (*request.settings, *request.recorded)]
        named += [s.partition("=")[0] for s in request.observed if s != "all"]
        for name in named:
            one_of("factor", name, {f for p in known for f in p.factors})
        one_of("profile", request.profile, {f for p in known for f in p.profiles})
        chosen = [p for p in known if request.profile in p.profiles and {*named} <= {*p.factors}]
        if not chosen:
            raise UserError(
                f"no pathology has the profile {request.profile} and all of these factors: "
                f"{', '.join(named)}"
            )
    for pathology in chosen:
        one_of("profile", request.profile, pathology.profiles)
        # Before anything is measured: the cells must fit into a table.
        column_types(pathology.name)
    return chosen


def requested_profile(request: Request, pathology: Pathology) -> Profile:
    """Return a pathology's profile with the levels and boots that the request sets."""
    profile = pathology.profiles[request.profile]
    if request.boots is not None:
        profile = replace(profile.in_every_boot(), boots=request.boots)
    return override(pathology, profile, request.settings, request.recorded)


def condition_profile(
    profile: Profile, conditions: Iterable[Condition], boots: int, **changes: Any
) -> Profile:
    """Return a profile of these conditions in every boot, without A/A pairs; else as `profile`."""
    usual = {name: levels[0] for name, levels in profile.grids[0].items()}
    grids: list[Grid] = []
    for condition in conditions:
        whole = {**usual, **condition}
        grid = {name: (level,) for name, level in whole.items() if level is not None}
        grids += [] if grid in grids else [grid]
    return replace(
        profile.in_every_boot(*grids),
        boots=boots,
        recorded_boots=boots,
        repeats_control=False,
        **changes,
    )


def sweep_label(request: Request) -> str:
    """Return the name of a sweep's folders; it depends on levels, boots, kernels and target."""
    label = request.profile
    for prefix, settings in (("", request.settings), ("record-", request.recorded)):
        label += "".join(f"-{prefix}{s.replace('=', '').replace(',', '+')}" for s in settings)
    if request.boots is not None:
        label += f"-boots{request.boots}"
    if request.seed:
        label += f"-seed{request.seed}"
    if request.kernels:
        label += "-" + "+".join(request.kernels)
    if request.target != "vm":
        where = re.sub(r"[^A-Za-z0-9.]+", "-", request.target.removeprefix("ssh://"))
        return "-".join(word for word in (label, where, request.place.label) if word)
    return label if request.clock == "virtual" else f"{label}-{request.clock}"


@dataclass
class PathologyPlan:
    """One pathology's part of a sweep, with the folder of its tables and pages."""

    # ``blocks`` are by their key in the store. ``kernels`` has the origin of each measured kernel,
    # ``unavailable`` why one cannot run here.

    pathology: Pathology
    folder: Path
    blocks: dict[str, Block] = field(default_factory=dict)
    kernels: dict[str, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


def plan_sweep(request: Request) -> list[PathologyPlan]:
    """Plan the blocks of a request that `check_request` accepts, after fetching their kernels."""
    chosen = chosen_pathologies(request)
    return plan_blocks([(p, requested_profile(request, p)) for p in chosen], request)


def plan_blocks(
    chosen: Iterable[tuple[Pathology, Profile]], request: Request
) -> list[PathologyPlan]:
    """Plan the blocks of pathologies with these profiles, on the request's kernels and target."""
    machine = None if request.target == "vm" else real_target(request.target)
    plans = []
    seen: set[str] = set()
    for pathology, profile in chosen:
        plan = PathologyPlan(pathology, request.root / pathology.name / sweep_label(request))
        if machine is None:
            _plan_virtual(plan, request, profile, seen)
        else:
            _plan_real(plan, request, profile, machine)
        plans.append(plan)
    if not any(plan.blocks for plan in plans):
        reasons = dict.fromkeys(r for plan in plans for r in plan.unavailable.values())
        raise CannotRunError(f"no kernel can run here: {'; '.join(reasons)}")
    if machine is not None and request.place.named:
        _check_place(machine, RawStore(request.root), plans)
    return plans


def _plan_virtual(plan: PathologyPlan, request: Request, profile: Profile, seen: set[str]) -> None:
    """Plan the blocks on every kernel that runs here, or on its first alternative that does."""
    # `seen` are the reasons that were logged: every pathology needs the same kernels.
    # The parts that every kernel needs come first: if they are missing, there is one error.
    ensure_toolbox()
    ensure_image()
    for alternatives in [(k,) for k in request.kernels] or profile.kernels:
        for kernel in alternatives:
            if kernel in plan.kernels or kernel in plan.unavailable:
                continue
            try:
                _plan_kernel(plan, request, profile, kernel)
                break
            except CannotRunError as error:
                plan.unavailable[kernel] = reason = str(error)
            if reason not in seen:
                seen.add(reason)
                _log.info("%s", reason)


def why_no_control(profile: Profile, kernel: str) -> str:
    """Return why a kernel cannot be that of the controls, or ""."""
    if kernel not in profile.treated_kernels:
        return ""
    return f"{kernel} is the treatment: it needs another kernel as its control"


def _plan_kernel(plan: PathologyPlan, request: Request, profile: Profile, kernel: str) -> None:
    """Plan the blocks on one kernel: all of them, or none if one cannot run here."""
    if reason := why_no_control(profile, kernel):
        raise CannotRunError(reason)
    blocks = blocks_of(
        plan.pathology, profile, kernel=kernel, clock=request.clock, seed=request.seed
    )
    # Treated cells may have a kernel of their own.
    machines = {(block.kernel, block.machine): block for block in blocks}
    targets = {machine: target_of(block) for machine, block in machines.items()}
    _check_jobs(blocks)
    identities = {key: target.identity() for key, target in targets.items()}
    plan.kernels |= {name: target.origin for (name, _), target in targets.items()}
    for block in blocks:
        plan.blocks[block_key(block, identities[block.kernel, block.machine])] = block


def check_before_fetching(pathology: Pathology) -> None:
    """Check a pathology's fio jobs with the guest's fio, unless it is not on this machine yet."""
    image = cached_image()
    if image is not None:
        profile = pathology.profiles["quick"]
        blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
        _check_jobs(blocks, guest_program(image, "fio"))


def _check_jobs(blocks: Iterable[Block], fio: Sequence[str] | None = None) -> None:
    """Check foreign fio jobs with fio's own parser before anything boots."""
    jobs: dict[str, OpenJob] = {}
    for cell in (cell for block in blocks for cell in block.plan.cells):
        for job in (cell.job, None if cell.antagonist is None else cell.antagonist.job):
            if isinstance(job, OpenJob):
                jobs.setdefault(repr(job.sections), job)
    for job in jobs.values():
        # What a fio of the user's own takes, it says itself.
        if job.binary is None:
            check_job(job, fio)


def _plan_real(
    plan: PathologyPlan, request: Request, profile: Profile, machine: RealTarget
) -> None:
    """Plan the blocks that a real machine can run, according to its survey."""
    identity = machine.identity()
    for block in blocks_of(
        plan.pathology, profile, kernel=machine.kernel, clock=request.clock, seed=request.seed
    ):
        try:
            if intervention(block.cells[0].condition[INTERVENTION]).cpus:
                raise CannotRunError("only a virtual machine can change its number of CPUs")
            if block.cells[0].condition.get(TREATED_KERNEL) is not None:
                raise CannotRunError("only a virtual machine can boot another kernel")
            agent_plan = replace(request.place.put(block.plan), hardware=True)
            if reason := machine.lacks(agent_plan):
                raise CannotRunError(reason)
        except CannotRunError as error:
            plan.unavailable[machine.kernel] = str(error)
            continue
        placed = replace(block, plan=agent_plan, target=request.target)
        plan.kernels[machine.kernel] = machine.origin
        plan.blocks[block_key(placed, identity)] = placed


def _check_place(machine: RealTarget, store: RawStore, plans: Iterable[PathologyPlan]) -> None:
    """Check the disk or folder, the same for all blocks, before anything starts."""
    missing = [b for plan in plans for key, b in plan.blocks.items() if not store.has(key)]
    if missing:
        machine.check(missing[0].plan)


def _said(result: Result) -> str:
    """Return fio's message about a job's fault, on one line."""
    words: list[str] = []
    for line in result.stderr.splitlines():
        # getopt prints the program's name as it was started: a wrapper's fio prints its whole path.
        one = re.sub(r"^(\S*/)?fio: ", "", line.strip())
        if one and not re.fullmatch(r"job .* dropped", one) and one not in words:
            words.append(one)
    valid = re.findall(r"^\s+(?:valid values)?: *(\S+)", result.stdout, re.MULTILINE)
    if valid:
        words.append(f"valid values: {', '.join(valid)}")
    return "; ".join(words)[:600] or f"exit {result.returncode}"


def check_job(job: FioJob, fio: Sequence[str] | None = None) -> None:
    """Check a job with fio's parser, by default the guest image's; UserError quotes its message.

    Raises CannotRunError if a signal ended fio.
    """
    guests = fio is None
    if fio is None:
        # Raises on a machine that cannot run the guest's programs.
        ensure_toolbox()
        fio = guest_program(ensure_image(), "fio")
    # The measured machine's cores and folders are not this machine's.
    folder, nodes = Path("/iolab"), [Path(f"/dev/iolab{number}") for number in range(8)]
    place = Workplace(job_files(job, folder), folder, None, 0, None, nodes)
    argv = fio_argv(replace(job, cpus=[]), place, Path("report"))
    # fio would create its output file and list the valid values there.
    options = [option for option in argv[1:] if not option.startswith("--output")]
    result = run([*fio, "--parse-only", *options], timeout_s=60, check=False)
    if result.returncode < 0:
        raise CannotRunError(f"signal {-result.returncode} ended fio while it read the job")
    if result.returncode:
        said = _said(result)
        # fio has no other sign for an option that it does not know; a typing error it corrects.
        if guests and "unrecognized option" in said and "Did you mean" not in said:
            said += "; fio_binary='newest' may know it"
        raise UserError(f"fio refuses the job: {said}")
