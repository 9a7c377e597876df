# SPDX-License-Identifier: MIT
"""The command ``iolab judge``: a claim, or a measure with a limit, as an exit code or a report."""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iolab.cli.options import PATH, complete_kernel, json_option, root_option
from iolab.cli.terminal import echo, print_json
from iolab.shown import counted
from iolab_base import foreign
from iolab_base.errors import IolabError, UserError

if TYPE_CHECKING:
    from xml.etree import ElementTree as ET

    from iolab.pathology.expressions import Question
    from iolab.sweeps.answers import Case, CaseAnswer
    from iolab.sweeps.judge import Judgement, Verdict

# As `git bisect run` reads them (git-bisect(1)).
EXIT_CODES = {"good": 0, "bad": 1, "untestable": 125}
_SWAPPED: dict[Verdict, Verdict] = {"good": "bad", "bad": "good", "untestable": "untestable"}


class AbortError(IolabError):
    """There is no verdict: the question, this machine or its disk is at fault, not the kernel."""

    # `git bisect run` takes 1 to 127 as a bad commit, and stops at 128 and above.
    exit_code = 128


class JudgingCommand(click.Command):
    """A command whose exit code is a verdict: any other failure is 128 or above."""

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        """Parse the arguments; a wrong argument must not count as a bad kernel."""
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
            raise AbortError(f"this is a bug in iolab: {error!r}") from error


@click.command(cls=JudgingCommand)
@click.argument("questions", metavar="[CLAIM|EXPRESSION]...", nargs=-1)
@click.option(
    "--kernel",
    metavar="NAME|TREE",
    shell_complete=complete_kernel,
    help="Kernel to boot, or a source tree to build one from.",
)
@click.option("--commit", help="Commit to build; by default the git work tree as it is.")
@click.option("--config", type=PATH, help="Kernel configuration to use instead of iolab's.")
@click.option("--fixed", is_flag=True, help="Swap 0 and 1: look for the commit that fixed it.")
@click.option(
    "--lock",
    type=PATH,
    default=Path("iolab.lock"),
    help="File of the expected answers; by default ./iolab.lock.",
)
@click.option("--update", is_flag=True, help="Write the answers to the lock as the expected ones.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="With --update: by how much a value may differ; 0 by default.",
)
@root_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "ktap", "junit"]),
    default="text",
    help="Output: lines of text, or a test report.",
)
@json_option
def judge(questions: tuple[str, ...], form: str, as_json: bool, **options: Any) -> int:
    """Judge a kernel by its exit code: 0 good, 1 bad.

    125 means that the kernel cannot be tested; 128 and above mean that nothing was judged.

    A claim describes a fault: a kernel is bad if it holds. An expression describes a good kernel,
    such as 'dio_kworker: iops ratio at weight=9600 > 0.9', or '... within 5% of 6.12'.

    The codes are those of `git bisect run`: git bisect run iolab judge CLAIM --kernel .

    Without a question, iolab judges those in iolab.lock; a kernel is good if it gives the expected
    verdict and value. --kernel replaces the lock's kernels. With several questions, one bad answer
    makes the kernel bad.

    Building a kernel runs the tree's code as you: judge only trees that you trust, or in a
    container.
    """
    from iolab.sweeps.answers import answered, outcome_of, write_lock
    from iolab.sweeps.judge import Judging
    from iolab.sweeps.progress import SweepProgress
    from iolab_base.files import check_outputs

    _check(questions, form, as_json=as_json, **options)
    if options["update"]:
        config = options["config"]
        check_outputs([options["lock"]], [config] if config else [])
    cases = _cases(questions, options["kernel"], options["lock"])
    with SweepProgress() as progress:
        root = options["root"].resolve()

        def asking(question: Question) -> Judging:
            return Judging(question, root, on_progress=progress.update)

        answers = answered(
            cases,
            asking,
            commit=options["commit"],
            config=options["config"],
            kept=options["update"],
        )
    if options["update"]:
        write_lock(options["lock"], answers, options["tolerance"])
    if options["fixed"]:
        answers = [replace(a, outcome=_SWAPPED[a.outcome]) for a in answers]
    if as_json:
        documents = [_document(answer) for answer in answers]
        print_json(documents[0] if len(questions) == 1 else documents)
    else:
        echo(_FORMATS[form](answers))
    if options["update"]:
        # The answers found are what is expected from now on.
        return EXIT_CODES["good" if all(a.found for a in answers) else "untestable"]
    return EXIT_CODES[outcome_of(answers)]


def _check(
    questions: tuple[str, ...],
    form: str,
    *,
    as_json: bool,
    kernel: str | None,
    fixed: bool,
    update: bool,
    tolerance: float | None,
    **_: Any,
) -> None:
    """Check that the options go together."""
    if questions and kernel is None:
        raise UserError("Missing option '--kernel': name the kernel to judge")
    if as_json and form != "text":
        raise UserError(f"--json and --format {form} exclude each other: choose one")
    if tolerance is not None and not update:
        raise UserError("--tolerance needs --update: an entry of the lock has its own")
    if tolerance is not None and not math.isfinite(tolerance):
        raise UserError(f"--tolerance must be a number of percent, not {tolerance}")
    if fixed and (update or not questions):
        raise UserError("--fixed needs a question: a lock has the verdict that it expects")


def _cases(questions: tuple[str, ...], kernel: str | None, lock: Path) -> list[Case]:
    from iolab.sweeps.answers import Case, of_lock, read_lock

    if not questions:
        return of_lock(read_lock(lock), lock.parent, kernel)
    return [Case(question.strip(), str(kernel)) for question in questions]


def _document(answer: CaseAnswer) -> dict[str, Any]:
    document = {
        "question": answer.title,
        "kernel": answer.case.kernel,
        "judgement": answer.judgement,
        "seconds": answer.seconds,
    }
    if answer.case.expected is not None:
        document |= {
            "outcome": answer.outcome,
            "difference": answer.difference,
            "expected": answer.case.expected,
        }
    return document


def judgement_line(judgement: Judgement) -> str:
    """Return a judgement in a few words."""
    if judgement.reason:
        return f"{judgement.verdict}: {judgement.reason}"
    boots = counted(judgement.boots, "boot")
    return f"{judgement.verdict}: {judgement.against}, {boots}, {judgement.cells} cells"


def as_text(answers: Sequence[CaseAnswer]) -> str:
    """Return a line for each answer."""
    return "\n".join(_line(answer, several=len(answers) > 1) for answer in answers)


def _line(answer: CaseAnswer, *, several: bool) -> str:
    expects = answer.case.expected is not None
    kernel = f" on {answer.case.kernel}" if several or expects else ""
    words = f"{answer.title}{kernel}: {judgement_line(answer.judgement)} ({answer.seconds:.0f} s)"
    if not expects:
        return words
    if answer.outcome == "untestable":
        return f"untestable  {words}"
    if answer.outcome == "good":
        return f"as expected  {words}"
    return f"DIFFERENT  {words}; {answer.difference}"


def as_ktap(answers: Sequence[CaseAnswer]) -> str:
    """Return answers as KTAP version 1, the format of the kernel's own tests."""
    lines = ["KTAP version 1", f"1..{len(answers)}"]
    for number, answer in enumerate(answers, 1):
        lines.append(f"# {_of_ktap(judgement_line(answer.judgement))}")
        if answer.difference:
            lines.append(f"# {_of_ktap(answer.difference)}")
        name = _of_ktap(f"{answer.title} on {answer.case.kernel}")
        if answer.outcome == "untestable":
            lines.append(f"ok {number} {name} # SKIP {_of_ktap(answer.judgement.reason)}")
        else:
            lines.append(f"{'ok' if answer.outcome == 'good' else 'not ok'} {number} {name}")
    return "\n".join(lines)


def _of_ktap(words: str) -> str:
    """Return words for a line of KTAP, where "#" begins a directive."""
    return foreign.line(words).replace("#", "?")


def as_junit(answers: Sequence[CaseAnswer]) -> str:
    """Return answers as JUnit XML, for GitLab, Jenkins and others."""
    failed = sum(answer.outcome == "bad" for answer in answers)
    skipped = sum(answer.outcome == "untestable" for answer in answers)
    counts = {
        "tests": str(len(answers)),
        "failures": str(failed),
        "errors": "0",
        "skipped": str(skipped),
        "time": f"{sum(answer.seconds for answer in answers):.1f}",
    }
    from xml.etree import ElementTree as ET

    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "iolab judge", **counts})
    for answer in answers:
        _add_case(suite, answer)
    ET.indent(suites, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode")


def _add_case(suite: ET.Element, answer: CaseAnswer) -> None:
    from xml.etree import ElementTree as ET

    pathology, _, question = answer.title.partition(": ")
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": foreign.line(f"iolab.{pathology}"),
            "name": foreign.line(f"{question} on {answer.case.kernel}"),
            "time": f"{answer.seconds:.1f}",
        },
    )
    words = foreign.line(judgement_line(answer.judgement))
    if answer.outcome == "bad":
        message = foreign.line(answer.difference or words)
        ET.SubElement(case, "failure", {"message": message, "type": "bad"}).text = words
    elif answer.outcome == "untestable":
        ET.SubElement(case, "skipped", {"message": words})
    measures = answer.judgement.measures or {}
    lines = [words, *(f"{name}: {_roles(values)}" for name, values in measures.items())]
    ET.SubElement(case, "system-out").text = foreign.text("\n".join(lines))


def _roles(values: dict[str, float]) -> str:
    return ", ".join(f"{role} {value:.10g}" for role, value in values.items())


_FORMATS: Final = {"text": as_text, "ktap": as_ktap, "junit": as_junit}
