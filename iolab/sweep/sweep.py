# SPDX-License-Identifier: MIT
"""A sweep: plan the blocks, measure what the store lacks, make tables, pages and figures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from iolab.agent.proc import available_memory
from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.errors import CannotRunError, UserError
from iolab.files import atomic_write, canonical_json, locked
from iolab.names import one_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Machine, Pathology, Profile, override
from iolab.paths import NOTEBOOKS, runs_dir
from iolab.stats.verdicts import verdict_summary, verdict_table
from iolab.store.dataset import Dataset
from iolab.store.raw import RawStore, block_key
from iolab.store.tidy import write_tables
from iolab.sweep.page import make_page
from iolab.sweep.pool import NotebookJob, OnProgress, make_pages
from iolab.targets import Target
from iolab.targets.machines import real_target
from iolab.targets.place import Place
from iolab.targets.real import RealTarget
from iolab.targets.vm import check_clock, prepare
from iolab.vm.image import ensure_image
from iolab.vm.kernels import check_name
from iolab.vm.toolbox import ensure_toolbox

__all__ = [
    "Outcome",
    "Request",
    "default_jobs",
    "family",
    "run_sweep",
    "start_page",
]

_VM_BYTES = 2 << 30


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Empty ``kernels`` means those of the profile, empty ``pathologies`` all that have the factors
    which are set. ``target`` is "vm" or a real machine; ``place`` is what is measured on there.
    """

    profile: str
    pathologies: Sequence[str] = ()
    kernels: Sequence[str] = ()
    settings: Sequence[str] = ()
    recorded: Sequence[str] = ()
    clock: str = "virtual"
    jobs: int = 1
    root: Path = field(default_factory=runs_dir)
    target: str = "vm"
    place: Place = field(default_factory=Place)


@dataclass
class Outcome:
    """What a sweep of one pathology came to."""

    pathology: str
    folder: Path
    blocks: int = 0
    measured: int = 0
    kept: int = 0
    kernels: dict[str, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    invalid: int = 0
    cells: int = 0
    page: Path | None = None
    verdicts: list[dict[Any, Any]] = field(default_factory=list)


def default_jobs() -> int:
    """Return how many virtual machines run side by side here: by cores and by free memory."""
    return max(1, min(len(os.sched_getaffinity(0)), available_memory() // _VM_BYTES))


def _targets(
    request: Request, pathology: Pathology, profile: Profile, log: Callable[[str], None]
) -> tuple[dict[str, dict[Machine, Target]], dict[str, str]]:
    """Return a target for each machine of each kernel that runs here, and the other kernels."""
    # What every kernel needs comes first: if it cannot be had, that is said once.
    ensure_image(ensure_toolbox(log), log)
    wanted = [(k,) for k in request.kernels] or profile.kernels
    found: dict[str, dict[Machine, Target]] = {}
    unavailable: dict[str, str] = {}
    for alternatives in wanted:
        for kernel in alternatives:
            if kernel in found or kernel in unavailable:
                continue
            try:
                blocks = blocks_of(pathology, profile, kernel=kernel, clock=request.clock)
                machines = {b.machine for b in blocks}
                found[kernel] = {
                    m: prepare(kernel, request.clock, log, cpus=m.cpus, memory_mib=m.memory_mib)
                    for m in machines
                }
            except CannotRunError as error:
                unavailable[kernel] = str(error)
                log(str(error))
                continue
            break
    return found, unavailable


@dataclass
class _Work:
    """One pathology's part of a sweep: its blocks by their key in the store, and the outcome."""

    pathology: Pathology
    outcome: Outcome
    blocks: dict[str, Block]

    def pages(self, store: RawStore, root: Path) -> list[NotebookJob]:
        """Return the pages of the blocks that the store lacks; each measures its own."""
        pages = []
        for key, block in self.blocks.items():
            if store.has(key):
                self.outcome.kept += 1
                continue
            name = block.plan.block
            plan = root / "plans" / f"{key}.json"
            atomic_write(plan, canonical_json(block.document()))
            pages.append(
                NotebookJob(
                    name=name,
                    notebook=NOTEBOOKS / "block.ipynb",
                    output=self.outcome.folder / "pages" / f"{name}.ipynb",
                    parameters={"plan": str(plan), "results": str(root)},
                    cells=len(block.cells),
                    progress=plan.with_suffix(".progress"),
                    memory_bytes=block.machine.memory_mib << 20,
                )
            )
        return pages


def _measure(
    request: Request,
    store: RawStore,
    works: Sequence[_Work],
    *,
    log: Callable[[str], None],
    on_progress: OnProgress,
) -> None:
    """Measure the blocks of all pathologies that the store lacks, side by side."""
    pages = {work.pathology.name: work.pages(store, request.root) for work in works}
    kept, blocks = (sum(getattr(w.outcome, n) for w in works) for n in ("kept", "blocks"))
    if kept:
        log(f"{kept} of {blocks} blocks are in the store already")

    def on_end(page: NotebookJob, error: str) -> None:
        log(f"{page.name}: {'failed: ' + error if error else 'measured'}")

    errors = make_pages(
        [page for found in pages.values() for page in found],
        jobs=request.jobs,
        memory_bytes=available_memory(),
        on_progress=on_progress,
        on_end=on_end,
    )
    for work in works:
        missing = pages[work.pathology.name]
        work.outcome.failed = {p.name: errors[p.name] for p in missing if p.name in errors}
        work.outcome.measured = sum(store.has(k) for k in work.blocks) - work.outcome.kept


def family(pathology: Pathology, data: Dataset) -> list[dict[str, Any]] | None:
    """Return the declared claims that this sweep measured; None where it measured none of them."""
    cells = data.cells
    measured = [
        dict(claim)
        for claim in pathology.preregistered
        if (cells[list(claim)] == pd.Series(claim)).all(axis=1).any()
    ]
    return measured or None


def _write_up(
    request: Request, store: RawStore, works: Sequence[_Work], log: Callable[[str], None]
) -> None:
    """Make the tables and pages of all that was measured, and one page to start from."""
    log("making the pages and figures")
    pages: dict[str, NotebookJob] = {}
    for work in works:
        pathology, outcome = work.pathology, work.outcome
        keys = [k for k in work.blocks if store.has(k)]
        if not keys:
            continue
        data = write_tables(store, keys, outcome.unavailable, outcome.folder)
        outcome.cells = len(data.cells)
        outcome.invalid = int((~data.cells["valid"]).sum())
        outcome.verdicts = verdict_summary(verdict_table(data)).to_dict("records")
        pages[pathology.name] = NotebookJob(
            name=pathology.name,
            notebook=NOTEBOOKS / pathology.notebook,
            output=outcome.folder / pathology.notebook,
            parameters={
                "data": str(outcome.folder),
                "figures_folder": str(outcome.folder / "figures"),
                "results_file": str(outcome.folder / "results.json"),
                "family": family(pathology, data),
            },
        )
    errors = make_pages(pages.values(), jobs=request.jobs)
    for work in works:
        name = work.pathology.name
        if name in errors:
            work.outcome.failed[name] = errors[name]
        elif name in pages:
            work.outcome.page = pages[name].output.with_suffix(".html")


def start_page(request: Request, outcomes: Sequence[Outcome]) -> Path | None:
    """Make the page that leads to the others: every verdict; None where nothing was measured.

    Errors: IolabError if it cannot be made.
    """
    folders = [str(o.folder) for o in outcomes if o.cells]
    if not folders:
        return None
    output = request.root / f"{_label(request)}.ipynb"
    links = {o.pathology: str(o.page.relative_to(request.root)) for o in outcomes if o.page}
    parameters = {"folders": folders, "links": links}
    return make_page(NOTEBOOKS / "00_start_here.ipynb", output, parameters).with_suffix(".html")


def _label(request: Request) -> str:
    """Return the name of a sweep's folders: one with its own levels or kernels is another sweep."""
    label = request.profile
    for prefix, settings in (("", request.settings), ("record-", request.recorded)):
        label += "".join(f"-{prefix}{s.replace('=', '').replace(',', '+')}" for s in settings)
    if request.kernels:
        label += "-" + "+".join(request.kernels)
    if request.target != "vm":
        where = re.sub(r"[^A-Za-z0-9.]+", "-", request.target.removeprefix("ssh://"))
        return "-".join(word for word in (label, where, request.place.label) if word)
    return label if request.clock == "virtual" else f"{label}-{request.clock}"


def _plan_real(
    request: Request, pathology: Pathology, profile: Profile, machine: RealTarget, outcome: Outcome
) -> _Work:
    """Return a pathology's blocks on a real machine: those that can run there, as far as it tells.

    What stands for a boot there is a block: nothing is rebooted.
    """
    identity = machine.identity()
    blocks: dict[str, Block] = {}
    for block in blocks_of(pathology, profile, kernel=machine.kernel, clock=request.clock):
        try:
            plan = replace(request.place.put(block.plan), hardware=True)
            placed = replace(block, plan=plan, target=request.target)
            reason = machine.lacks(plan)
        except CannotRunError as error:
            reason = str(error)
        if reason:
            outcome.unavailable[machine.kernel] = reason
            continue
        outcome.kernels[machine.kernel] = machine.origin
        blocks[block_key(placed, identity)] = placed
    outcome.blocks = len(blocks)
    return _Work(pathology, outcome, blocks)


def _plan_one(
    request: Request,
    pathology: Pathology,
    log: Callable[[str], None],
    machine: RealTarget | None,
) -> _Work:
    """Return a pathology's blocks on all kernels that can run here, or on a real `machine`.

    Errors: UserError for a factor or a level that it has not.
    """
    profile = override(
        pathology, pathology.profiles[request.profile], request.settings, request.recorded
    )
    outcome = Outcome(pathology.name, request.root / pathology.name / _label(request))
    if machine is not None:
        return _plan_real(request, pathology, profile, machine, outcome)
    targets, outcome.unavailable = _targets(request, pathology, profile, log)
    blocks: dict[str, Block] = {}
    for kernel, machines in targets.items():
        outcome.kernels[kernel] = next(iter(machines.values())).origin
        identities = {name: target.identity() for name, target in machines.items()}
        for block in blocks_of(pathology, profile, kernel=kernel, clock=request.clock):
            identity = identities[block.machine]
            blocks[block_key(block, identity)] = block
    outcome.blocks = len(blocks)
    return _Work(pathology, outcome, blocks)


def _chosen(request: Request) -> list[Pathology]:
    """Return the pathologies that are asked for: by name, else all that know the factors set.

    Errors: UserError for a name, profile or factor that is not known.
    """
    if request.pathologies:
        chosen = [get_pathology(name) for name in request.pathologies]
    else:
        named = [s.partition("=")[0] for s in (*request.settings, *request.recorded)]
        for name in named:
            one_of("factor", name, {f for p in PATHOLOGIES.values() for f in p.factors})
        one_of("profile", request.profile, {f for p in PATHOLOGIES.values() for f in p.profiles})
        chosen = [
            p
            for p in PATHOLOGIES.values()
            if request.profile in p.profiles and all(name in p.factors for name in named)
        ]
        if not chosen:
            raise UserError(
                f"no pathology has the profile {request.profile} and all of these factors: "
                f"{', '.join(named)}"
            )
    for pathology in chosen:
        one_of("profile", request.profile, pathology.profiles)
    return chosen


def _machine(request: Request) -> RealTarget | None:
    """Return the real machine that is asked for, or None for virtual ones.

    Errors: UserError for what does not go together; those of `real_target`.
    """
    if request.target == "vm":
        if request.place.label:
            raise UserError("--directory, --destroy and --make are for real machines (--target)")
        return None
    if request.kernels:
        raise UserError("--kernel is for virtual machines: a real one runs the kernel it runs")
    if request.clock != "host":
        raise UserError("a real machine has no virtual clock: leave --clock away")
    if request.jobs != 1:
        raise UserError("a real machine measures one block at a time: leave --jobs away")
    return real_target(request.target)


def _check_place(machine: RealTarget, store: RawStore, works: Sequence[_Work]) -> None:
    """Check what is measured on before anything is begun: all blocks name the same.

    Errors: UserError if it is refused.
    """
    blocks = (item for work in works for item in work.blocks.items())
    missing = next((block for key, block in blocks if not store.has(key)), None)
    if missing is not None:
        machine.check(missing.plan)


def run_sweep(
    request: Request,
    log: Callable[[str], None] = lambda line: None,
    on_progress: OnProgress = lambda progress: None,
) -> list[Outcome]:
    """Do what `request` asks for and return an outcome for each pathology.

    Blocks that the store has are kept; the others are measured side by side, each as a page.
    `log` hears a line for each step, `on_progress` how far the measuring is.

    Errors: UserError for an unknown profile, pathology, kernel or factor, a level out of range, or
    a disk or folder that is refused; CannotRunError if no kernel that was asked for can run here.
    """
    if request.jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {request.jobs}")
    check_clock(request.clock)
    chosen = _chosen(request)
    machine = _machine(request)
    for kernel in request.kernels:
        check_name(kernel)
    said: set[str] = set()

    def log_once(line: str) -> None:
        # Each pathology asks for the same kernels.
        if line not in said:
            said.add(line)
            log(line)

    works = [_plan_one(request, pathology, log_once, machine) for pathology in chosen]
    outcomes = [work.outcome for work in works]
    if not any(work.blocks for work in works):
        reasons = dict.fromkeys(r for o in outcomes for r in o.unavailable.values())
        raise CannotRunError(f"no kernel can run here: {'; '.join(reasons)}")
    store = RawStore(request.root)
    if machine is not None and request.place.named:
        _check_place(machine, store, works)
    waiting = f"another sweep is at work in {request.root}: waiting for its end"
    with locked(request.root / ".sweep.lock", lambda: log(waiting)):
        _measure(request, store, works, log=log, on_progress=on_progress)
        _write_up(request, store, works, log)
    _publish(request.root, outcomes)
    return outcomes


def _publish(root: Path, outcomes: Sequence[Outcome]) -> None:
    """Join the pathologies' results into one file for the write-up."""
    joined = {}
    for outcome in outcomes:
        path = outcome.folder / "results.json"
        if path.exists():
            joined[outcome.pathology] = json.loads(path.read_text())
    if joined:
        atomic_write(root / "results.json", json.dumps(joined, indent=1, sort_keys=True) + "\n")
