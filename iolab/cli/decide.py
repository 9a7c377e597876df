# SPDX-License-Identifier: MIT
"""The command ``iolab decide``: every primary claim, from the fewest boots that decide it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.completion import complete_kernel, complete_pathology
from iolab.cli.documents import json_option, print_json
from iolab.cli.terminal import echo
from iolab.paths import runs_dir
from iolab_base.errors import IolabError

if TYPE_CHECKING:
    from iolab.sweeps.decide import Decisions

__all__ = ["decide"]


@click.command()
@click.argument(
    "pathologies", nargs=-1, metavar="[NAME|FILE]...", shell_complete=complete_pathology
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    shell_complete=complete_kernel,
    help="Kernel to boot (repeatable); by default those of the profile quick.",
)
@click.option("--seed", type=int, default=0, help="Draws other orders and other seeds of jobs.")
@click.option("--target", default="vm", show_default=True, help="vm, local, or ssh://user@host.")
@click.option("--jobs", type=int, help="Virtual machines side by side.")
@click.option(
    "--root", type=click.Path(path_type=Path), default=runs_dir, help="Folder of the results."
)
@json_option
def decide(as_json: bool, **options: Any) -> None:
    """Decide every primary claim from the fewest boots.

    The claims' conditions are measured beside their controls in three boots. What these do not
    decide gets three more; the levels of both looks make up for looking twice. Pages, maps and
    secondary claims are of `iolab sweep`.
    """
    from iolab.cli.progress import SweepProgress
    from iolab.sweeps.decide import decide as decided
    from iolab.sweeps.pool import default_jobs
    from iolab.sweeps.request import Request

    clock = "virtual" if options["target"] == "vm" else "host"
    jobs = options.pop("jobs")
    request = Request(
        **{**options, "root": options["root"].resolve()},
        profile="quick",
        clock=clock,
        jobs=default_jobs(clock) if jobs is None else jobs,
    )
    with SweepProgress() as progress:
        found = decided(request, progress.update)
    if as_json:
        print_json([row.document() for row in found.rows])
    else:
        _show(found)
    if found.failed:
        name, reason = next(iter(found.failed.items()))
        raise IolabError(f"{name} was not measured: {reason.splitlines()[0]}")


def _show(found: Decisions) -> None:
    from iolab.stats.verdicts import verdict_text

    head = ""
    for row in found.rows:
        if (here := f"{row.pathology} on {row.kernel}") != head:
            head = here
            echo()
            echo(head, bold=True)
        words = verdict_text(asdict(row.judged))
        level = f", {row.confidence:.0%}, n = {row.judged.n}" if row.judged.n else ""
        echo(f"  {row.claim.name}: {row.judged.verdict} ({words}{level})")
    echo()
    echo(f"{found.cells} cells; tables in {', '.join(map(str, found.folders.values())) or 'none'}")
