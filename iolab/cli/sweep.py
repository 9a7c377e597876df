# SPDX-License-Identifier: MIT
"""Commands that measure, and the one that shows what would be: sweep, plan, decide, atlas."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.options import (
    SelectionCommand,
    complete_pathology,
    jobs_option,
    json_option,
    kernels_option,
    pathologies_argument,
    request_of,
    root_option,
    selection,
    target_option,
)
from iolab.cli.terminal import echo, print_json
from iolab.interrupts import interrupt_says
from iolab.shown import rough_duration
from iolab.targets.place import MADE, Place
from iolab_base.errors import IolabError, UserError

if TYPE_CHECKING:
    from iolab.sweeps.decide import Decisions
    from iolab.sweeps.preview import PathologyPreview
    from iolab.sweeps.request import Request
    from iolab.sweeps.sweep import Outcome

_INTERRUPTED = "interrupted; measured blocks are kept, and the next sweep measures the rest"


@click.command(cls=SelectionCommand)
@selection
@click.option(
    "--pathology",
    "pathologies",
    multiple=True,
    metavar="NAME|FILE",
    shell_complete=complete_pathology,
    help="Pathology, by name or by the file that defines it (repeatable); by default all.",
)
@click.option(
    "--target",
    default="vm",
    show_default=True,
    help="vm, local (this machine itself), or ssh://user@host[:port].",
)
@click.option("--directory", help="Real machines: measure on files made in this folder.")
@click.option("--destroy", metavar="/dev/...", help="Real machines: measure on this disk.")
@click.option("--serial", help="Serial number of --destroy: confirms the loss of its data.")
@click.option("--make", type=click.Choice(MADE), help="Real machines: make this device.")
@click.option("--clock", help="virtual or host; by default virtual in virtual machines.")
@jobs_option
@click.option(
    "--cluster",
    default="",
    metavar="tcp://HOST:PORT",
    help="Measure on the workers of this Dask scheduler.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be measured.")
@json_option
def sweep(as_json: bool, dry_run: bool, **options: Any) -> None:
    """Measure, and write tables, pages and figures.

    Blocks that the store has are not measured again. Progress goes to standard error.
    """
    request = request_of(options, place=_place(options))
    if dry_run:
        _show_plan(request, as_json=as_json)
    else:
        _run(request, as_json=as_json)


@click.command(cls=SelectionCommand)
@pathologies_argument
@selection
@json_option
def plan(as_json: bool, **options: Any) -> None:
    """Show what a sweep would measure.

    It prints factors, kernels, boots, cells and traces in virtual machines, what cannot run here,
    and how long the sweep takes. FILE defines a pathology. Nothing is booted, fetched or measured.
    The command is short for `iolab sweep --dry-run`.
    """
    _show_plan(request_of(options), as_json=as_json)


def _run(request: Request, *, as_json: bool) -> None:
    from iolab.sweeps.progress import SweepProgress
    from iolab.sweeps.sweep import run_sweep, start_page

    with interrupt_says(_INTERRUPTED), SweepProgress() as progress:
        outcomes = run_sweep(request, progress.update)
        first = start_page(request, outcomes)
    if as_json:
        print_json({"start_page": first, "pathologies": list(map(_outcome_document, outcomes))})
    else:
        for outcome in outcomes:
            _show_outcome(outcome)
        if first:
            echo(f"\nopen {first}")
    if any(outcome.failed for outcome in outcomes):
        raise IolabError("parts of it failed; measured blocks are kept: run the sweep again")


def _place(options: dict[str, Any]) -> Place:
    if options["directory"] and options["destroy"]:
        raise UserError("--directory and --destroy exclude each other: choose one")
    if options["serial"] is not None and not options["destroy"]:
        raise UserError("--serial needs --destroy: it identifies that disk")
    made = options["make"]
    if made and options["destroy"]:
        raise UserError("--make and --destroy exclude each other: choose one")
    if made == "loop" and not options["directory"]:
        raise UserError("--make loop needs --directory, a folder for the device's file")
    if made in ("zram", "brd") and options["directory"]:
        raise UserError(f"--make {made} stores nothing in a folder: omit --directory")
    directory = options["directory"]
    if directory and options["target"] == "local":
        directory = str(Path(directory).resolve())
    if directory and not directory.startswith("/"):
        raise UserError(f"--directory on another machine is an absolute path, not {directory!r}")
    return Place(directory, options["destroy"], options["serial"], made)


def _show_outcome(outcome: Outcome) -> None:
    plan = outcome.plan
    echo()
    echo(plan.pathology.name, bold=True)
    kernels = ", ".join(f"{name} ({source})" for name, source in plan.kernels.items())
    echo(f"  measured on     {kernels}")
    for name, reason in plan.unavailable.items():
        echo(f"  cannot run here {name}: {reason}")
    done = outcome.measured + outcome.kept
    echo(f"  blocks          {done} of {len(plan.blocks)} ({outcome.kept} were in the store)")
    echo(f"  cells           {outcome.cells}, of which {outcome.invalid} are not valid")
    for name, error in outcome.failed.items():
        echo(f"  failed          {name}: {error}")
    if outcome.page:
        echo(f"  page            {outcome.page}")
    if outcome.cells:
        echo(f"  figures         {plan.folder / 'figures'}")
        echo(f"  tables          {plan.folder / 'cells.parquet'}")
    for row in outcome.verdicts:
        echo(f"  {row['kernel']:16}mechanism {row['mechanism']}, magnitude {row['magnitude']}")


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    plan = outcome.plan
    return {
        "pathology": plan.pathology.name,
        "folder": plan.folder,
        "page": outcome.page,
        "kernels": plan.kernels,
        "unavailable": plan.unavailable,
        "blocks": len(plan.blocks),
        "blocks_measured": outcome.measured,
        "blocks_kept": outcome.kept,
        "cells": outcome.cells,
        "cells_invalid": outcome.invalid,
        "failed": outcome.failed,
        "verdicts": [{n.replace(" ", "_"): v for n, v in row.items()} for row in outcome.verdicts],
    }


def _show_plan(request: Request, *, as_json: bool) -> None:
    from iolab.sweeps.preview import preview_sweep

    previews = preview_sweep(request)
    if as_json:
        print_json(previews)
        return
    for preview in previews:
        _show_preview(preview, request.jobs)
    if len(previews) > 1:
        blocks = sum(kernel.blocks for p in previews for kernel in p.kernels)
        cells = sum(kernel.cells for p in previews for kernel in p.kernels)
        seconds = sum(preview.duration.seconds for preview in previews)
        echo(f"\nall: {blocks} blocks, {cells} cells, about {rough_duration(seconds)}")


def _show_preview(preview: PathologyPreview, jobs: int) -> None:
    echo()
    echo(f"{preview.pathology}: {preview.title}", bold=True)
    echo("  factors")
    for name, levels in preview.factors.items():
        listed = ", ".join("control" if level is None else str(level) for level in levels)
        echo(f"    {name:14} {listed}{' (treatment)' if name == preview.treatment else ''}")
    for row in preview.translation:
        echo(f"  {row.section}: {row.option} {row.asked} -> {row.measured} ({row.why})")
    echo("  kernels          boots  cells  recorded")
    for kernel in preview.kernels:
        state = "" if kernel.state == "cached" else f"  {kernel.state}"
        if kernel.alternatives:
            state += f"  or {', '.join(kernel.alternatives)}"
        counts = f"{kernel.blocks:5}  {kernel.cells:5}  {kernel.recorded:8}"
        echo(f"    {kernel.kernel:12} {counts}{state}")
    for name, reason in preview.unavailable.items():
        echo(f"  cannot run here  {name}: {reason}")
    for name, reason in preview.undecided.items():
        echo(f"  cannot be judged {name}: {reason}")
    duration = preview.duration
    echo(
        f"  time             about {rough_duration(duration.seconds)}, {jobs} machines side by side"
    )
    echo(f"                   {duration.seconds_per_cell:.1f} s for a cell, {duration.basis}")
    echo(f"  results          {preview.folder}")


@click.command()
@pathologies_argument
@kernels_option("Kernel to boot (repeatable); by default those of the profile quick.")
@click.option("--seed", type=int, default=0, help="Draws other boots, orders and seeds of jobs.")
@target_option
@jobs_option
@root_option
@json_option
def decide(as_json: bool, **options: Any) -> None:
    """Decide every primary claim from the fewest boots.

    iolab measures each claim's condition beside its control in three boots. A claim that stays open
    gets three more; the confidence levels account for looking twice. For pages, maps and secondary
    claims use `iolab sweep`.
    """
    from iolab.sweeps.decide import decide as decided
    from iolab.sweeps.progress import SweepProgress

    request = request_of(options, profile="quick")
    with SweepProgress() as progress:
        found = decided(request, progress.update)
    if as_json:
        print_json([row.document() for row in found.rows])
    else:
        _show_decisions(found)
    if found.failed:
        name, reason = next(iter(found.failed.items()))
        raise IolabError(f"{name} was not measured: {reason.splitlines()[0]}")


def _show_decisions(found: Decisions) -> None:
    from iolab.stats.estimates import boots_text
    from iolab.stats.verdicts import verdict_text

    head = ""
    for row in found.rows:
        if (here := f"{row.pathology} on {row.kernel}") != head:
            head = here
            echo()
            echo(head, bold=True)
        words = verdict_text(asdict(row.judged))
        if row.judged.n:
            words += f", {boots_text(row.judged.n, row.confidence)}"
            words += f"; {row.judged.reason}" if row.judged.reason else ""
        echo(f"  {row.claim.name}: {row.judged.verdict} ({words})")
    echo()
    echo(f"{found.cells} cells; tables in {', '.join(map(str, found.folders.values())) or 'none'}")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@kernels_option("Kernel to boot (repeatable); by default 6.1 and 6.12.")
@click.option("--boots", type=int, help="Boots of each kernel; by default what decides a claim.")
@click.option("--seed", type=int, default=0, help="Draws other boots, orders and seeds of jobs.")
@target_option
@jobs_option
@click.option("--check", is_flag=True, help="Only check that each entry is complete.")
@root_option
@json_option
def atlas(*, names: tuple[str, ...], check: bool, as_json: bool, **options: Any) -> None:
    """Measure public reports of slow I/O.

    Without a NAME, iolab measures the whole atlas: its own five reports, then the files in atlas/,
    of at most 40 lines each. FILE is an entry of your own. Each report gets a page, a mail and a
    reproducer; one index links to them.
    """
    from iolab.sweeps.atlas import entries

    wanted = entries(names)
    if check:
        if as_json:
            print_json([{"report": entry.name, "complete": True} for entry in wanted])
        else:
            echo("\n".join(f"{entry.name}: complete" for entry in wanted))
        return
    from iolab.sweeps.atlas import run_atlas
    from iolab.sweeps.progress import SweepProgress

    if options["target"] == "vm":
        options["kernels"] = options["kernels"] or ("6.1", "6.12")
    request = request_of({**options, "pathologies": ()}, profile="quick")
    with interrupt_says(_INTERRUPTED), SweepProgress() as progress:
        index, outcomes = run_atlas(wanted, request, progress.update)
    if as_json:
        print_json({"index": index, "reports": list(map(_outcome_document, outcomes))})
    else:
        for outcome in outcomes:
            _show_outcome(outcome)
        echo(f"\nopen {index}")
