# SPDX-License-Identifier: MIT
"""A sweep: plan the blocks, measure what the store lacks, make tables, pages and figures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from iolab.design import Pathology, Profile, blocks_of, one_of, override
from iolab.errors import CannotRunError, UserError
from iolab.files import atomic_write, canonical_json, locked
from iolab.pathology import get_pathology
from iolab.pool import Page, Teller, make_pages
from iolab.raw import RawStore, block_key
from iolab.store import Dataset
from iolab.target.vm import VmTarget, check_clock, prepare
from iolab.tidy import write_tables
from iolab.vm.image import ensure_image
from iolab.vm.kernels import check_name
from iolab.vm.toolbox import ensure_toolbox

__all__ = [
    "CHECKOUT",
    "NOTEBOOKS",
    "RUNS",
    "Outcome",
    "Request",
    "available_memory",
    "default_jobs",
    "family",
    "run_sweep",
]

CHECKOUT = Path(__file__).resolve().parent.parent
NOTEBOOKS = CHECKOUT / "notebooks"
RUNS = CHECKOUT / "data" / "runs"
_VM_BYTES = 2 << 30


@dataclass(frozen=True)
class Request:
    """What the user asked for; empty ``kernels`` means those of the profile."""

    profile: str
    pathologies: Sequence[str]
    kernels: Sequence[str] = ()
    settings: Sequence[str] = ()
    recorded: Sequence[str] = ()
    clock: str = "virtual"
    jobs: int = 1
    root: Path = RUNS


@dataclass
class Outcome:
    """What a sweep of one pathology came to."""

    pathology: str
    folder: Path
    blocks: int = 0
    measured: int = 0
    kept: int = 0
    kernels: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    invalid: int = 0
    cells: int = 0
    pages: list[Path] = field(default_factory=list)


def available_memory() -> int:
    """Return the bytes of memory that programs can still have, as the kernel estimates them."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable:"))


def default_jobs() -> int:
    """Return how many virtual machines run side by side here: by cores and by free memory."""
    return max(1, min(len(os.sched_getaffinity(0)), available_memory() // _VM_BYTES))


def _targets(
    request: Request, pathology: Pathology, profile: Profile, say: Callable[[str], None]
) -> tuple[dict[str, dict[str, VmTarget]], dict[str, str]]:
    """Return, for each kernel that runs here, a target for each machine; and the absent ones."""
    # What every kernel needs comes first: if it cannot be had, that is said once.
    ensure_image(ensure_toolbox(say), say)
    wanted = [(k,) for k in request.kernels] or profile.kernels
    found: dict[str, dict[str, VmTarget]] = {}
    absent: dict[str, str] = {}
    for alternatives in wanted:
        for kernel in alternatives:
            if kernel in found or kernel in absent:
                continue
            try:
                blocks = blocks_of(pathology, profile, kernel=kernel, clock=request.clock)
                machines = {canonical_json(b["machine"]): b["machine"] for b in blocks}
                found[kernel] = {
                    name: prepare(kernel, request.clock, machine, say)
                    for name, machine in machines.items()
                }
            except CannotRunError as error:
                absent[kernel] = str(error)
                say(str(error))
                continue
            break
    return found, absent


def _measure(
    request: Request,
    store: RawStore,
    blocks: Mapping[str, dict[str, Any]],
    outcome: Outcome,
    *,
    say: Callable[[str], None],
    tell: Teller,
) -> None:
    """Measure the blocks (by key) that the store lacks, each through its own page."""
    missing = {k: b for k, b in blocks.items() if not store.has(k)}
    outcome.kept = len(blocks) - len(missing)
    if outcome.kept:
        say(f"{outcome.kept} of {len(blocks)} blocks are in the store already")
    pages = []
    for key, block in missing.items():
        name = block["plan"]["block"]
        plan = request.root / "plans" / f"{key}.json"
        atomic_write(plan, canonical_json(block))
        pages.append(
            Page(
                name=name,
                notebook=NOTEBOOKS / "block.ipynb",
                output=outcome.folder / "pages" / f"{name}.ipynb",
                parameters={"plan": str(plan), "results": str(request.root)},
                cells=len(block["cells"]),
                progress=plan.with_suffix(".progress"),
            )
        )

    def on_end(page: Page, error: str) -> None:
        say(f"{page.name}: {'failed: ' + error if error else 'measured'}")

    errors = make_pages(pages, jobs=request.jobs, tell=tell, on_end=on_end)
    outcome.failed.update(errors)
    outcome.measured = sum(store.has(k) for k in missing)


def family(pathology: Pathology, data: Dataset) -> list[dict[str, Any]] | None:
    """Return the declared claims that this sweep measured; None where it measured none of them."""
    cells = data.cells
    measured = [
        dict(claim)
        for claim in pathology.declared
        if (cells[list(claim)] == pd.Series(claim)).all(axis=1).any()
    ]
    return measured or None


def _write_up(
    pathology: Pathology, outcome: Outcome, data: Dataset, say: Callable[[str], None], jobs: int
) -> None:
    say("making the pages and figures")
    folder = outcome.folder
    parameters = {
        "data": str(folder),
        "figures_folder": str(folder / "figures"),
        "results_file": str(folder / "results.json"),
        "family": family(pathology, data),
    }
    pages = [
        Page(
            name=pathology.name,
            notebook=NOTEBOOKS / pathology.notebook,
            output=folder / pathology.notebook,
            parameters=parameters,
        ),
        Page(
            name="00_start_here",
            notebook=NOTEBOOKS / "00_start_here.ipynb",
            output=folder / "00_start_here.ipynb",
            parameters={"data": str(folder)},
        ),
    ]
    outcome.failed.update(make_pages(pages, jobs=jobs))
    outcome.pages = [p.output.with_suffix(".html") for p in pages if p.name not in outcome.failed]


def _sweep_one(
    request: Request, pathology: Pathology, say: Callable[[str], None], tell: Teller
) -> Outcome:
    profile = pathology.profiles[one_of("profile", request.profile, pathology.profiles)]
    # A sweep with its own levels or kernels is another sweep: it has another folder.
    label = request.profile
    profile = override(pathology, profile, request.settings, request.recorded)
    for prefix, settings in (("", request.settings), ("record-", request.recorded)):
        label += "".join(f"-{prefix}{s.replace('=', '').replace(',', '+')}" for s in settings)
    if request.kernels:
        label += "-" + "+".join(request.kernels)
    if request.clock != "virtual":
        label += f"-{request.clock}"
    outcome = Outcome(pathology.name, request.root / pathology.name / label)
    targets, outcome.absent = _targets(request, pathology, profile, say)
    if not targets:
        raise CannotRunError(f"no kernel can run here: {'; '.join(outcome.absent.values())}")
    blocks: dict[str, dict[str, Any]] = {}
    for kernel, machines in targets.items():
        outcome.kernels[kernel] = next(iter(machines.values())).kernel.source
        identities = {name: target.identity() for name, target in machines.items()}
        for block in blocks_of(pathology, profile, kernel=kernel, clock=request.clock):
            identity = identities[canonical_json(block["machine"])]
            blocks[block_key(block, identity)] = block
    outcome.blocks = len(blocks)
    store = RawStore(request.root)
    waiting = f"another sweep is at work in {request.root}: waiting for its end"
    with locked(request.root / ".sweep.lock", lambda: say(waiting)):
        _measure(request, store, blocks, outcome, say=say, tell=tell)
        keys = [k for k in blocks if store.has(k)]
        if not keys:
            return outcome
        data = write_tables(store, keys, outcome.absent, outcome.folder)
        outcome.cells = len(data.cells)
        outcome.invalid = int((~data.cells["valid"]).sum())
        _write_up(pathology, outcome, data, say, request.jobs)
    return outcome


def run_sweep(
    request: Request,
    say: Callable[[str], None] = lambda line: None,
    tell: Teller = lambda progress: None,
) -> list[Outcome]:
    """Do what `request` asks for and return an outcome for each pathology.

    Blocks that the store has are kept; the others are measured side by side, each as a page.
    `say` hears a line for each step, `tell` how far the measuring is.

    Errors: UserError for an unknown profile, pathology, kernel or factor, or a level out of range;
    CannotRunError if no kernel that was asked for can run here.
    """
    if request.jobs < 1:
        raise UserError(f"--jobs must be at least 1, not {request.jobs}")
    check_clock(request.clock)
    for kernel in request.kernels:
        check_name(kernel)
    pathologies = [get_pathology(name) for name in request.pathologies]
    for pathology in pathologies:
        one_of("profile", request.profile, pathology.profiles)
    outcomes = [_sweep_one(request, pathology, say, tell) for pathology in pathologies]
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
