# SPDX-License-Identifier: MIT
"""Commands that find a cause: the commit of a kernel tree, or a switch of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.options import (
    PATH,
    complete_kernel,
    complete_pathology,
    jobs_option,
    json_option,
    root_option,
    target_option,
)
from iolab.cli.terminal import echo, note, print_json
from iolab.interrupts import interrupt_says
from iolab_base.errors import IolabError, UserError

if TYPE_CHECKING:
    from iolab.sweeps.answers import JudgedTree
    from iolab.sweeps.bisect import Step

_INTERRUPTED = "interrupted; all verdicts are kept, and the same command continues from there"


@click.command()
@click.argument("commits", nargs=-1, required=True, metavar="GOOD [BAD] CLAIM|EXPRESSION")
@click.option("--tree", type=PATH, required=True, help="Git repository of a kernel.")
@click.option("--config", type=PATH, help="Kernel configuration to use instead of iolab's.")
@click.option("--fixed", is_flag=True, help="Find the fix: GOOD is bad, and BAD is good.")
@click.option(
    "--patches", type=PATH, help="Judge GOOD, then each patch of this folder on top of it."
)
@click.option("--why", is_flag=True, help="Observe the commit, and try the kernel's switches.")
@root_option
@json_option
def bisect(commits: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Find the commit between GOOD and BAD that changed the answer.

    bisect judges both ends first, and skips commits that do not compile or boot. To verify the
    commit that it finds, it judges the commit's parent, and BAD without the commit. With --why the
    report also shows what the commit costs, function by function, and which of the kernel's
    switches matter. To continue an interrupted search, run the same command again. The work tree
    stays unchanged.

    Building a kernel runs the tree's code as you: bisect only trees that you trust, or in a
    container.
    """
    from iolab.pathology.expressions import question_of
    from iolab.sweeps.answers import judged_tree
    from iolab.sweeps.judge import Judging
    from iolab.sweeps.progress import SweepProgress

    wanted = 2 if options["patches"] else 3
    if len(commits) != wanted:
        form = "GOOD CLAIM" if options["patches"] else "GOOD BAD CLAIM"
        raise UserError(f"iolab bisect takes {form}, not {len(commits)} arguments")
    asked = question_of(commits[-1])
    root = options["root"].resolve()
    with interrupt_says(_INTERRUPTED), SweepProgress() as progress:
        how = Judging(asked, root, on_progress=progress.update)
        judged = judged_tree(options["tree"], how, options["config"])
        if options["patches"]:
            _judge_series(judged, commits[0], options["patches"], as_json=as_json)
        else:
            chosen = {name: options[name] for name in ("fixed", "why")}
            _search(judged, commits, **chosen, as_json=as_json)


def _tell(step: Step) -> None:
    from iolab.cli.judge import judgement_line

    note(f"{step.title}: {judgement_line(step.judgement)}")


def _search(
    judged: JudgedTree, commits: tuple[str, ...], *, fixed: bool, why: bool, as_json: bool
) -> None:
    from iolab.report.bisection import write_bisection
    from iolab.sweeps.bisect import bisect as search
    from iolab.sweeps.bisect import explain

    found = search(judged, commits[0], commits[1], fixed=fixed, on_step=_tell)
    repository, root = judged.repository, judged.how.root
    # Also before the explanation, which takes minutes and may be interrupted.
    path = write_bisection(found, repository, root)
    if why:
        path = write_bisection(found, repository, root, explain(judged, found))
    if as_json:
        print_json({"found": found, "verified": found.verified, "report": path})
    elif found.culprit is not None:
        echo(found.culprit.title, bold=True)
        echo(f"verified: {'yes' if found.verified else 'no'}; {path}")
    if found.culprit is None:
        raise IolabError(
            f"commits that cannot be tested hide it: it is one of {len(found.suspects)}; {path}"
        )


def _judge_series(judged: JudgedTree, base: str, folder: Path, *, as_json: bool) -> None:
    from iolab.cli.judge import judgement_line
    from iolab.sweeps.bisect import judge_patches

    patches = sorted(folder.glob("*.patch")) if folder.is_dir() else [folder]
    if not patches:
        raise UserError(f"{folder} has no file *.patch")
    steps = judge_patches(judged, base, patches, _tell)
    if as_json:
        print_json(steps)
        return
    for step in steps:
        echo(f"{step.title}: {judgement_line(step.judgement)}")


@click.command()
@click.argument("pathology", metavar="NAME|FILE", shell_complete=complete_pathology)
@click.option("--kernel", shell_complete=complete_kernel, help="Kernel to boot.")
@click.option("--claim", default="", help="Claim to answer, with its condition.")
@click.option(
    "--switch",
    "interventions",
    multiple=True,
    metavar="NO_FEATURE|NAME=VALUE",
    help="Switch to try (repeatable); by default every switch of the kernel.",
)
@click.option("--boots", type=int, default=8, show_default=True, help="Boots per confirmation.")
@target_option
@jobs_option
@root_option
@json_option
def why(as_json: bool, **options: Any) -> None:
    """Find the switch of a kernel that is the cause.

    iolab boots the kernel and lists its switches: features of the scheduler, preemption models,
    settings, timers, CPUs. It tries each alone in two boots, and confirms those that matter in
    fresh boots. Use + to try several together: NO_DELAY_DEQUEUE+preempt=full.
    """
    from iolab.sweeps.why import find_causes, why_request

    if options["target"] == "vm" and not options["kernel"]:
        raise UserError("name the kernel: --kernel 6.12")
    asked = why_request(**{**options, "kernel": options["kernel"] or ""})
    # They import what makes pages, which takes seconds.
    from iolab.report.attribution import attribution_text
    from iolab.sweeps.pages import make_why_page
    from iolab.sweeps.progress import SweepProgress

    with SweepProgress() as progress:
        result = find_causes(asked, progress.update)
        page = make_why_page(result.folder)
    if as_json:
        print_json({"folder": result.folder, "page": page, "rows": result.table.to_dict("records")})
        return
    echo()
    echo(f"{result.pathology} on {result.kernel}", bold=True)
    for line in attribution_text(result.table):
        echo(f"  {line}")
    echo(f"\nopen {page}")
