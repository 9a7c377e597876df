# SPDX-License-Identifier: MIT
"""The command ``iolab why``: which switches of a kernel remove a pathology, or bring it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.completion import complete_kernel, complete_pathology
from iolab.cli.documents import json_option, print_json
from iolab.cli.terminal import echo
from iolab.paths import runs_dir
from iolab_base.errors import UserError

if TYPE_CHECKING:
    from iolab.sweeps.why import Why

__all__ = ["why"]

_LEVEL = "NO_FEATURE|NAME=VALUE"


@click.command()
@click.argument("pathology", metavar="NAME|FILE", shell_complete=complete_pathology)
@click.option("--kernel", shell_complete=complete_kernel, help="Kernel to boot.")
@click.option("--claim", default="", help="Claim to answer, with its condition.")
@click.option(
    "--switch",
    "interventions",
    multiple=True,
    metavar=_LEVEL,
    help="Try this alone (repeatable); by default whatever the kernel offers.",
)
@click.option("--boots", type=int, default=8, show_default=True, help="Boots that confirm.")
@click.option("--target", default="vm", show_default=True, help="vm, local, or ssh://user@host.")
@click.option("--jobs", type=int, help="Virtual machines side by side.")
@click.option(
    "--root", type=click.Path(path_type=Path), default=runs_dir, help="Folder of the results."
)
@json_option
def why(as_json: bool, **options: Any) -> None:
    """Find the switch of a kernel that is the cause.

    The kernel is booted and asked for its switches: features of the scheduler, preemption models,
    settings, timers, CPUs. Each is tried alone in two boots; those that matter are confirmed in
    fresh boots. A switch may be several at once: NO_DELAY_DEQUEUE+preempt=full.
    """
    from iolab.cli.progress import SweepProgress
    from iolab.sweeps.pages import make_why_page
    from iolab.sweeps.why import find_causes, why_request

    if options["target"] == "vm" and not options["kernel"]:
        raise UserError("name the kernel: --kernel 6.12")
    asked = why_request(**{**options, "kernel": options["kernel"] or ""})
    with SweepProgress() as progress:
        result = find_causes(asked, progress.update)
        page = make_why_page(result.folder)
    if as_json:
        print_json({"folder": result.folder, "page": page, "rows": result.table.to_dict("records")})
    else:
        _show(result)
        echo(f"\nopen {page}")


def _show(result: Why) -> None:
    from iolab.report.attribution import attribution_text

    echo()
    echo(f"{result.pathology} on {result.kernel}", bold=True)
    for line in attribution_text(result.table):
        echo(f"  {line}")
