# SPDX-License-Identifier: MIT
"""A sweep: plan the blocks, measure those that the store lacks, write up the results.

The write-up is tables, figures and pages: papermill executes ``notebooks/experiment.ipynb`` for
each kernel, and the notebook of each report.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iolab.pathology import notebook_path
from iolab.pathology.base import EXPERIMENT
from iolab.paths import NOTEBOOKS
from iolab.stats.conditions import kernels_of
from iolab.stats.verdicts import measured_family, verdict_summary, verdict_table
from iolab.store.dataset import Dataset
from iolab.store.raw import RawStore
from iolab.store.tables import write_tables
from iolab.sweeps.measure import Measured, measure, store_locked
from iolab.sweeps.pages import Page, make_page, make_pages
from iolab.sweeps.pool import OnProgress
from iolab.sweeps.request import PathologyPlan, Request, check_request, plan_sweep, sweep_label
from iolab_base import foreign
from iolab_base.files import atomic_write

_log = logging.getLogger(__name__)


@dataclass
class Outcome:
    """The result of one pathology's sweep: its plan, and what was measured."""

    # `measured` and `kept` count blocks of this sweep and earlier ones; `failed` has each failed
    # block or page and why. `cells` are in the tables, `invalid` counts those rejected by a gate.
    # `experiments` has a page for each kernel; `verdicts` are rows of
    # `iolab.stats.verdicts.verdict_summary`.

    plan: PathologyPlan
    measured: int = 0
    kept: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    cells: int = 0
    invalid: int = 0
    page: Path | None = None
    experiments: dict[str, Path] = field(default_factory=dict)
    verdicts: list[dict[Any, Any]] = field(default_factory=list)


def run_sweep(request: Request, on_progress: OnProgress = lambda progress: None) -> list[Outcome]:
    """Measure what a request asks for and write it up; return the outcome of each pathology."""
    check_request(request)
    plans = plan_sweep(request)
    blocks = {key: block for plan in plans for key, block in plan.blocks.items()}
    with store_locked(request.root):
        measured = measure(blocks, request, on_progress)
        _log.info("making the pages and figures")
        return _write_up(request, plans, measured)


def _write_up(
    request: Request, plans: Sequence[PathologyPlan], measured: Measured
) -> list[Outcome]:
    """Make the tables and pages of each pathology that has blocks in the store."""
    store = RawStore(request.root)
    outcomes = [_outcome(plan, store, measured) for plan in plans]
    written = [(outcome, table) for outcome in outcomes if (table := _tables(store, outcome))]
    experiments = [
        (outcome, _experiment(request, outcome.plan, kernel))
        for outcome, table in written
        for kernel in _experiment_kernels(outcome.plan, table)
    ]
    for outcome, page in _made(request, experiments):
        outcome.experiments[page.parameters["kernel"][0]] = page.output.with_suffix(".html")
    reports = [(outcome, _report(request, outcome, table)) for outcome, table in written]
    for outcome, page in _made(request, reports):
        outcome.page = page.output.with_suffix(".html")
    _publish(request.root, outcomes)
    return outcomes


def _outcome(plan: PathologyPlan, store: RawStore, measured: Measured) -> Outcome:
    missing = [key for key in measured.missing if key in plan.blocks]
    names = {plan.blocks[key].plan.block for key in missing}
    return Outcome(
        plan,
        measured=sum(map(store.has, missing)),
        kept=len(plan.blocks) - len(missing),
        failed={name: str(why) for name, why in measured.failed.items() if name in names},
    )


def _tables(store: RawStore, outcome: Outcome) -> Dataset | None:
    """Write the tables of what was measured and judge them; None if nothing was."""
    plan = outcome.plan
    keys = [key for key in plan.blocks if store.has(key)]
    if not keys:
        return None
    data = write_tables(store, keys, plan.unavailable, plan.folder)
    outcome.cells = len(data.cells)
    outcome.invalid = int((~data.cells["valid"]).sum())
    outcome.verdicts = verdict_summary(verdict_table(data)).to_dict("records")
    return data


def _made(
    request: Request, wanted: Sequence[tuple[Outcome, Page]]
) -> Iterator[tuple[Outcome, Page]]:
    """Make pages and yield those that are there; note in its outcome why one is not."""
    errors = make_pages([page for _, page in wanted], jobs=request.jobs)
    for outcome, page in wanted:
        if page.name in errors:
            outcome.failed[page.name] = str(errors[page.name])
        else:
            yield outcome, page


def _experiment_kernels(plan: PathologyPlan, data: Dataset) -> list[str]:
    """Return the kernels whose experiment has a page of its own."""
    kernels = kernels_of(data.cells)
    # Without a timeline, the pathology's page shows the same.
    same = len(kernels) == 1 or not data.cells["recorded"].any()
    return [] if plan.pathology.notebook == EXPERIMENT and same else kernels


def _experiment(request: Request, plan: PathologyPlan, kernel: str) -> Page:
    """Return the page that shows one kernel's conditions."""
    # A real machine reports its kernel's name itself.
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", kernel)
    output = plan.folder / "experiments" / f"kernel-{name}.ipynb"
    own = plan.pathology.name
    above = {"All verdicts": _index(request), own: plan.folder / f"{own}.html"}
    return Page(
        f"{own} on {kernel}",
        NOTEBOOKS / EXPERIMENT,
        output,
        {"data": str(plan.folder), "kernel": [kernel], "results": str(request.root)},
        links=_links(output.parent, above),
        heading=f"{plan.pathology.title}: kernel {name}",
    )


def _report(request: Request, outcome: Outcome, data: Dataset) -> Page:
    plan, name = outcome.plan, outcome.plan.pathology.name
    pages = {f"Experiment on {kernel}": page for kernel, page in outcome.experiments.items()}
    parameters = {
        "data": str(plan.folder),
        "figures_folder": str(plan.folder / "figures"),
        "results_file": str(plan.folder / "results.json"),
        "family": measured_family(plan.pathology, data.cells),
    }
    heading = ""
    if plan.pathology.notebook == EXPERIMENT:
        parameters["results"] = str(request.root)
        heading = plan.pathology.title
    return Page(
        name,
        notebook_path(plan.pathology),
        plan.folder / f"{name}.ipynb",
        parameters,
        links=_links(plan.folder, {"All verdicts": _index(request), **pages}),
        heading=heading,
    )


def _index(request: Request) -> Path:
    """Return the page that shows every verdict."""
    return request.root / f"{request.index or sweep_label(request)}.html"


def _links(folder: Path, pages: Mapping[str, Path]) -> dict[str, str]:
    """Return the addresses of pages, relative to a folder."""
    return {words: os.path.relpath(page, folder) for words, page in pages.items()}


def _publish(root: Path, outcomes: Sequence[Outcome]) -> None:
    """Join the pathologies' results into one file for the write-up."""
    joined = {}
    for outcome in outcomes:
        folder = outcome.plan.folder
        if (path := folder / "results.json").exists():
            joined[outcome.plan.pathology.name] = foreign.read_document(path, below=folder)
    if joined:
        atomic_write(root / "results.json", json.dumps(joined, indent=1, sort_keys=True) + "\n")


def start_page(request: Request, outcomes: Sequence[Outcome]) -> Path | None:
    """Make the page with every verdict and all links, if anything is measured; return its HTML."""
    if not any(outcome.cells for outcome in outcomes):
        return None
    parameters = {
        "folders": [str(outcome.plan.folder) for outcome in outcomes if outcome.cells],
        "links": _links(request.root, {o.plan.pathology.name: o.page for o in outcomes if o.page}),
        "experiments": {
            o.plan.pathology.name: _links(request.root, o.experiments) for o in outcomes
        },
    }
    output = _index(request).with_suffix(".ipynb")
    make_page(Page("the start page", NOTEBOOKS / "00_start_here.ipynb", output, parameters))
    return output.with_suffix(".html")
