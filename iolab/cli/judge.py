# SPDX-License-Identifier: MIT
"""The command ``iolab judge``: a claim, or a measure with a limit, as an exit code."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.completion import complete_kernel
from iolab.cli.documents import json_option, print_json
from iolab.cli.terminal import echo
from iolab.errors import IolabError
from iolab.paths import runs_dir

if TYPE_CHECKING:
    from iolab.sweeps.judging import Judgement

__all__ = ["EXIT_CODES", "AbortError", "JudgingCommand", "judge", "judgement_line"]

# As `git bisect run` reads them (git-bisect(1)).
EXIT_CODES = {"good": 0, "bad": 1, "untestable": 125}
_PATH = click.Path(path_type=Path)


class AbortError(IolabError):
    """No verdict on the kernel: the question, this machine or its disk is at fault."""

    # `git bisect run` takes 1 to 127 for a bad commit, and ends at 128 and above.
    exit_code = 128


class JudgingCommand(click.Command):
    """A command whose exit code is a verdict: whatever else goes wrong is 128 or above."""

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        """Parse the arguments; a wrong one is no bad kernel."""
        try:
            return super().make_context(*words, **more)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise AbortError(" ".join(error.format_message().split())) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except OSError as error:
            raise AbortError(f"{error.strerror or error}: {error.filename or ''}") from error
        except IolabError as error:
            raise AbortError(str(error)) from error
        except Exception as error:
            # Python would exit with 1, which is a verdict.
            traceback.print_exc()
            raise AbortError(f"this is a fault of iolab's: {error!r}") from error


@click.command(cls=JudgingCommand)
@click.argument("question", metavar="CLAIM|EXPRESSION")
@click.option(
    "--kernel",
    required=True,
    metavar="NAME|TREE",
    shell_complete=complete_kernel,
    help="Kernel to boot, or a source tree to build one from.",
)
@click.option("--commit", help="What to build of a git repository; by default the work tree as is.")
@click.option("--config", type=_PATH, help="A whole configuration instead of iolab's small one.")
@click.option("--fixed", is_flag=True, help="Swap 0 and 1: look for the commit that fixed it.")
@click.option("--root", type=_PATH, default=runs_dir, help="Folder of the results.")
@json_option
def judge(question: str, kernel: str, as_json: bool, **options: Any) -> int:
    """Judge a kernel by its exit code: 0 good, 1 bad.

    125 means that it cannot be tested; 128 and above, that nothing was judged.

    A claim says what is wrong: where it holds, the kernel is bad. An expression says what is right,
    such as 'dio_kworker: iops ratio at weight=9600 > 0.9', or '... within 5% of 6.12'.

    The codes are those of `git bisect run`: git bisect run iolab judge CLAIM --kernel .
    """
    from iolab.cli.progress import SweepProgress
    from iolab.pathology.expressions import question_of
    from iolab.sweeps.judged_trees import judge_here
    from iolab.sweeps.judging import Judging

    began = time.monotonic()
    asked = question_of(question)
    with SweepProgress() as progress:
        root = options["root"].resolve()
        how = Judging(asked, root, log=progress.log, on_progress=progress.update)
        judgement = judge_here(how, kernel, commit=options["commit"], config=options["config"])
    seconds = round(time.monotonic() - began, 1)
    code = EXIT_CODES[judgement.verdict]
    if options["fixed"] and code < 2:
        code = 1 - code
    if as_json:
        print_json(
            {"question": asked.text, "kernel": kernel, "judgement": judgement, "seconds": seconds}
        )
    else:
        echo(f"{asked.text}: {judgement_line(judgement)} ({seconds:.0f} s)")
    return code


def judgement_line(judgement: Judgement) -> str:
    """Return a judgement in a few words."""
    if judgement.reason:
        return f"{judgement.verdict}: {judgement.reason}"
    boots = "1 boot" if judgement.boots == 1 else f"{judgement.boots} boots"
    return (
        f"{judgement.verdict}: {judgement.value:.4g} where the limit is {judgement.expected:.4g}, "
        f"{boots}, {judgement.cells} cells"
    )
