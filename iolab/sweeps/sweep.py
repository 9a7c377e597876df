# SPDX-License-Identifier: MIT
"""Run a sweep: measure the blocks that the store lacks, then make tables, pages and figures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iolab import foreign
from iolab.files import atomic_write
from iolab.pathology import notebook_path
from iolab.pathology.base import EXPERIMENT
from iolab.paths import NOTEBOOKS
from iolab.shown import rough_duration
from iolab.stats.conditions import kernels_of
from iolab.stats.families import measured_family
from iolab.stats.verdicts import verdict_summary, verdict_table
from iolab.store.dataset import Dataset
from iolab.store.raw import RawStore
from iolab.store.tidy import write_tables
from iolab.sweeps.block import write_block
from iolab.sweeps.forecast import expected_s, forecast
from iolab.sweeps.history import measured_here
from iolab.sweeps.measuring import check_room, measure_here, measure_jobs, store_locked
from iolab.sweeps.observing import blocks_to_measure, note_observed, prepare_observer
from iolab.sweeps.ordering import longest_first
from iolab.sweeps.planning import PathologyPlan, plan_sweep
from iolab.sweeps.pool import BlockJob, Job, NotebookJob, OnProgress, run_job, run_jobs
from iolab.sweeps.request import Request, check_request, sweep_label
from iolab.sweeps.warm import WarmPages

__all__ = ["Outcome", "run_sweep", "start_page"]


@dataclass
class Outcome:
    """What a sweep of one pathology came to: its plan, and what was measured of it.

    Parameters
    ----------
    plan : PathologyPlan
        Its blocks, kernels and folder.
    measured, kept : int
        Blocks that this sweep measured, and blocks that were in the store before.
    failed : dict of str to str
        Each page that failed, and why.
    cells, invalid : int
        Cells in the tables, and how many of them a gate made invalid.
    page : Path or None
        The pathology's page.
    experiments : dict of str to Path
        The page of ``notebooks/experiment.ipynb`` on each kernel.
    verdicts : list of dict
        Rows of `iolab.stats.verdicts.verdict_summary`.
    """

    plan: PathologyPlan
    measured: int = 0
    kept: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    cells: int = 0
    invalid: int = 0
    page: Path | None = None
    experiments: dict[str, Path] = field(default_factory=dict)
    verdicts: list[dict[Any, Any]] = field(default_factory=list)


def run_sweep(
    request: Request,
    pages: WarmPages,
    log: Callable[[str], None] = lambda line: None,
    on_progress: OnProgress = lambda progress: None,
) -> list[Outcome]:
    """Measure what a request asks for and write it up.

    Blocks in the store are kept; the others are measured side by side, each as a page.

    Parameters
    ----------
    request : Request
        What to measure.
    pages : WarmPages
        What the pages are forked from.
    log : callable
        Called with a line for each step.
    on_progress : callable
        Called with the `Progress` of the measuring, some ten times a second.

    Returns
    -------
    list of Outcome
        One for each pathology.

    Raises
    ------
    UserError
        If a profile, pathology, kernel or factor is unknown, a level is out of range, or a disk or
        folder is refused.
    CannotRunError
        If no kernel of the request can run here.
    """
    check_request(request)
    outcomes = [Outcome(plan) for plan in plan_sweep(request, log)]
    for outcome in outcomes:
        prepare_observer(outcome.plan.blocks.values(), request.observed, log, calls=request.calls)
    store = RawStore(request.root)
    with store_locked(request.root, log):
        _measure(request, store, outcomes, pages, log=log, on_progress=on_progress)
        log("making the pages and figures")
        _write_up(request, store, outcomes, pages)
    _publish(request.root, outcomes)
    return outcomes


def _measure(
    request: Request,
    store: RawStore,
    outcomes: Sequence[Outcome],
    pages: WarmPages,
    *,
    log: Callable[[str], None],
    on_progress: OnProgress,
) -> None:
    """Measure the blocks of all pathologies that the store lacks, side by side."""
    missing = [
        blocks_to_measure(
            o.plan.blocks, store, request.observed, request.calls, log, flat=request.flat
        )
        for o in outcomes
    ]
    for outcome, keys in zip(outcomes, missing, strict=True):
        outcome.kept = len(outcome.plan.blocks) - len(keys)
    if kept := sum(outcome.kept for outcome in outcomes):
        blocks = sum(len(outcome.plan.blocks) for outcome in outcomes)
        log(f"{kept} of {blocks} blocks are in the store already")
    check_room(request, sum(len(keys) for keys in missing))
    history = measured_here()
    order = longest_first(
        [[o.plan.blocks[key] for key in keys] for o, keys in zip(outcomes, missing, strict=True)],
        history,
    )
    outcomes, missing = [outcomes[n] for n in order], [missing[n] for n in order]
    wanted = {
        key: o.plan.blocks[key] for o, keys in zip(outcomes, missing, strict=True) for key in keys
    }
    lengths = dict(zip(wanted, expected_s(wanted.values(), history), strict=True))
    if request.target == "vm" and not request.cluster and wanted:
        expected = forecast(wanted.values(), request.jobs, history=history)
        about = rough_duration(expected.seconds)
        log(f"{len(wanted)} blocks to measure, about {about} ({expected.basis})")
    jobs = [
        [_block_job(request, outcome.plan, key, lengths[key]) for key in keys]
        for outcome, keys in zip(outcomes, missing, strict=True)
    ]

    def on_end(job: Job, error: str) -> None:
        log(f"{job.name}: {'failed: ' + error if error else 'measured'}")

    wanted_pages = [job for of_one in jobs for job in of_one]
    if request.cluster:
        # The pages are made here, of what came back.
        alone = [_without_page(request, job) for job in wanted_pages]
        errors = measure_jobs(alone, request, log=log, on_progress=on_progress, on_end=on_end)
        measured = [job for job in wanted_pages if job.name not in errors]
        errors |= run_jobs(measured, jobs=request.jobs, pages=pages)
    else:
        errors = measure_here(
            wanted_pages, request, pages=pages, on_progress=on_progress, on_end=on_end
        )
    for outcome, keys, of_one in zip(outcomes, missing, jobs, strict=True):
        outcome.failed = _failures(of_one, errors)
        outcome.measured = sum(store.has(key) for key in keys)


def _failures(jobs: Iterable[NotebookJob], errors: dict[str, str]) -> dict[str, str]:
    return {job.name: errors[job.name] for job in jobs if job.name in errors}


def _block_job(request: Request, plan: PathologyPlan, key: str, expected_s: float) -> NotebookJob:
    """Write a block to a file and return the job of the page that measures it."""
    block = plan.blocks[key]
    name = block.plan.block
    file = request.root / "plans" / f"{key}.json"
    write_block(file, block)
    note_observed(file, block, request.observed, request.calls, flat=request.flat)
    output = plan.folder / "pages" / f"{name}.ipynb"
    return NotebookJob(
        name=name,
        notebook=NOTEBOOKS / "block.ipynb",
        output=output,
        parameters={"plan": str(file), "results": str(request.root)},
        links=_links(output.parent, _above(request, plan)),
        cells=len(block.cells),
        progress=file.with_suffix(".progress"),
        memory_bytes=block.machine.memory_mib << 20,
        expected_s=expected_s,
    )


def _without_page(request: Request, page: NotebookJob) -> BlockJob:
    """Return the job that measures the block of a page alone."""
    plan = Path(page.parameters["plan"])
    return BlockJob(page.name, plan, request.root, page.cells, page.memory_bytes, page.expected_s)


def _index(request: Request) -> Path:
    """Return the page that shows every verdict."""
    return request.root / f"{sweep_label(request)}.html"


def _above(request: Request, plan: PathologyPlan) -> dict[str, Path]:
    """Return the pages that a page of a pathology leads back to."""
    name = plan.pathology.name
    return {"All verdicts": _index(request), name: plan.folder / f"{name}.html"}


def _links(folder: Path, pages: Mapping[str, Path]) -> dict[str, str]:
    """Return the addresses of pages, relative to a folder."""
    return {words: os.path.relpath(page, folder) for words, page in pages.items()}


def _write_up(
    request: Request, store: RawStore, outcomes: Sequence[Outcome], pages: WarmPages
) -> None:
    """Make the tables and pages of each pathology of which something was measured."""
    data = {outcome.plan.pathology.name: _tables(store, outcome) for outcome in outcomes}
    _make_experiments(request, outcomes, data, pages)
    jobs: dict[str, NotebookJob] = {}
    for outcome in outcomes:
        plan = outcome.plan
        if (measured := data[plan.pathology.name]) is None:
            continue
        jobs[plan.pathology.name] = NotebookJob(
            name=plan.pathology.name,
            notebook=notebook_path(plan.pathology),
            output=plan.folder / f"{plan.pathology.name}.ipynb",
            parameters={
                "data": str(plan.folder),
                "figures_folder": str(plan.folder / "figures"),
                "results_file": str(plan.folder / "results.json"),
                "family": measured_family(plan.pathology, measured.cells),
            },
            links=_links(
                plan.folder,
                {"All verdicts": _index(request)}
                | {f"Experiment on {k}": page for k, page in outcome.experiments.items()},
            ),
        )
    errors = run_jobs(jobs.values(), jobs=request.jobs, pages=pages)
    for outcome in outcomes:
        job = jobs.get(outcome.plan.pathology.name)
        if job is None:
            continue
        outcome.failed |= _failures([job], errors)
        if job.name not in errors:
            outcome.page = job.output.with_suffix(".html")


def _tables(store: RawStore, outcome: Outcome) -> Dataset | None:
    """Write the tables of what was measured and judge them; None where nothing was."""
    plan = outcome.plan
    keys = [key for key in plan.blocks if store.has(key)]
    if not keys:
        return None
    data = write_tables(store, keys, plan.unavailable, plan.folder)
    outcome.cells = len(data.cells)
    outcome.invalid = int((~data.cells["valid"]).sum())
    outcome.verdicts = verdict_summary(verdict_table(data)).to_dict("records")
    return data


def _make_experiments(
    request: Request,
    outcomes: Sequence[Outcome],
    data: Mapping[str, Dataset | None],
    pages: WarmPages,
) -> None:
    """Make the page of the experiment on each kernel of each pathology."""
    jobs: dict[str, dict[str, NotebookJob]] = {}
    for outcome in outcomes:
        measured = data[outcome.plan.pathology.name]
        kernels = [] if measured is None else _experiment_kernels(outcome.plan, measured)
        jobs[outcome.plan.pathology.name] = {
            kernel: _experiment_job(request, outcome.plan, kernel) for kernel in kernels
        }
    wanted = [job for own in jobs.values() for job in own.values()]
    errors = run_jobs(wanted, jobs=request.jobs, pages=pages)
    for outcome in outcomes:
        own = jobs[outcome.plan.pathology.name]
        outcome.failed |= _failures(own.values(), errors)
        outcome.experiments = {
            kernel: job.output.with_suffix(".html")
            for kernel, job in own.items()
            if job.name not in errors
        }


def _experiment_kernels(plan: PathologyPlan, data: Dataset) -> list[str]:
    """Return the kernels whose experiment has a page of its own."""
    kernels = kernels_of(data.cells)
    # Then the pathology's page is the same.
    return [] if plan.pathology.notebook == EXPERIMENT and len(kernels) == 1 else kernels


def _experiment_job(request: Request, plan: PathologyPlan, kernel: str) -> NotebookJob:
    """Return the job of the page that shows one kernel's conditions."""
    # A real machine says itself what its kernel is called.
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", kernel)
    output = plan.folder / "experiments" / f"kernel-{name}.ipynb"
    return NotebookJob(
        name=f"{plan.pathology.name} on {kernel}",
        notebook=NOTEBOOKS / EXPERIMENT,
        output=output,
        parameters={"data": str(plan.folder), "kernel": [kernel]},
        links=_links(output.parent, _above(request, plan)),
        heading=f"{plan.pathology.title}: kernel {name}",
    )


def _publish(root: Path, outcomes: Sequence[Outcome]) -> None:
    """Join the pathologies' results into one file for the write-up."""
    joined = {}
    for outcome in outcomes:
        folder = outcome.plan.folder
        if (path := folder / "results.json").exists():
            joined[outcome.plan.pathology.name] = foreign.read_document(path, below=folder)
    if joined:
        atomic_write(root / "results.json", json.dumps(joined, indent=1, sort_keys=True) + "\n")


def start_page(request: Request, outcomes: Sequence[Outcome], pages: WarmPages) -> Path | None:
    """Make the page that shows every verdict and leads to the other pages.

    It is forked from `pages`, as those of `run_sweep`.

    Returns
    -------
    Path or None
        The HTML page; None where nothing was measured.

    Raises
    ------
    IolabError
        If the page cannot be made.
    """
    written = [outcome for outcome in outcomes if outcome.cells]
    if not written:
        return None
    parameters = {
        "folders": [str(outcome.plan.folder) for outcome in written],
        "links": {
            outcome.plan.pathology.name: str(outcome.page.relative_to(request.root))
            for outcome in outcomes
            if outcome.page
        },
        "experiments": {
            outcome.plan.pathology.name: _links(request.root, outcome.experiments)
            for outcome in outcomes
        },
    }
    output = _index(request).with_suffix(".ipynb")
    page = NotebookJob("the start page", NOTEBOOKS / "00_start_here.ipynb", output, parameters)
    run_job(page, pages)
    return output.with_suffix(".html")
