# SPDX-License-Identifier: MIT
"""The command ``iolab ask``: one fio job, one treatment, one answer."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.options import PATH, json_option, kernels_option, root_option
from iolab.cli.terminal import echo, print_json, print_table, records
from iolab_base.errors import UserError

if TYPE_CHECKING:
    from iolab.experiment import Comparison
    from iolab.pathology.base import Pathology

_LEVELS = "NAME=LEVEL[,LEVEL...]"


class _AskCommand(click.Command):
    """A command whose argument may be fio's options, which begin with dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a word with several options is the job."""
        words = [f"fio {arg}" if re.match(r"-\S+\s+-", arg) else arg for arg in args]
        return super().parse_args(ctx, words)


@click.command(cls=_AskCommand)
@click.argument("job", metavar="'fio ...'|FILE")
@click.option("--treatment", multiple=True, metavar=_LEVELS, help="What to change (repeatable).")
@click.option(
    "--vary",
    multiple=True,
    metavar=_LEVELS,
    help="What else to vary, or with one level to set: filesystem=ext4 (repeatable).",
)
@click.option("--claim", "claims", multiple=True, help="Such as 'iops ratio < 0.9' (repeatable).")
@kernels_option("Kernel to boot (repeatable); by default 6.1.")
@click.option("--boots", type=int, help="Boots of each kernel; by default enough for a verdict.")
@click.option("--cpus", type=int, default=1, show_default=True, help="CPUs of the guest.")
@click.option("--fio-binary", metavar="PATH|newest", help="fio instead of the guest image's.")
@click.option("--as-asked", is_flag=True, help="Run for as long as the job asks, or to its end.")
@click.option("--no-record", is_flag=True, help="Record no trace, and do not show preemptions.")
@click.option("--dry-run", is_flag=True, help="Only show how iolab understands the job.")
@click.option("--page", type=PATH, help="Write the answer as a page, NAME.html.")
@root_option
@json_option
def ask(job: str, *, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Measure a fio job with and without a treatment.

    The job is a command line, its options, or an unchanged job file or script. A treatment is a
    file of its cgroup (cpu.weight=1000), an option of fio (iodepth=32), a kernel setting, a
    scheduler feature or the I/O scheduler; the how-to about jobs lists them all. The answer shows
    how iolab translated the job, the ratio treated/untreated with its interval, the claims'
    verdicts, and who preempts whom.
    """
    given = {
        # False also for a name that is too long.
        "fio": str(Path(job).resolve()) if os.path.isfile(job) else job,  # noqa: PTH113
        "treatment": _levels(options["treatment"]),
        **({"vary": varied} if (varied := _levels(options["vary"])) else {}),
        **({"claims": list(options["claims"])} if options["claims"] else {}),
        **({"cpus": options["cpus"]} if options["cpus"] != 1 else {}),
        **{name: options[name] for name in ("as_asked", "fio_binary") if options[name]},
    }
    if not given["treatment"]:
        raise UserError("give a treatment, such as --treatment cpu.weight=1000")
    if options["boots"] == 1:
        from iolab.experiment.compare import first_look

        given = first_look(given)
    if dry_run:
        from iolab.experiment import question
        from iolab.experiment.compare import chosen_kernels
        from iolab.sweeps.request import Request, check_before_fetching, check_request

        asked = question(**given)
        kernels = chosen_kernels(asked, list(options["kernels"]) or None)
        check_request(Request(profile="quick", kernels=kernels, boots=options["boots"]))
        check_before_fetching(asked)
        _show_translation(asked, as_json=as_json)
        return
    _answer(given, as_json=as_json, **options)


def _answer(given: Mapping[str, Any], *, as_json: bool, **options: Any) -> None:
    from iolab.experiment import compare, question

    root = options["root"].resolve()
    asked = question(**given)
    kernels = list(options["kernels"]) or None
    boots = {} if options["boots"] is None else {"boots": options["boots"]}
    record = not options["no_record"]
    found = compare(asked, kernel=kernels, record=record, root=root, **boots)
    file = _write_question(root / "questions" / f"{asked.name}.py", given)
    page = None
    if options["page"] is not None:
        page = _write_page(options["page"], file, found, results=str(root), record=record, **boots)
    if as_json:
        print_json(
            {
                "translation": [vars(row) for row in asked.translation],
                "ratio": records(found.ratio),
                "verdicts": records(found.verdict()),
                "question": file,
                "page": page,
            }
        )
        return
    _show_translation(asked, as_json=False)
    echo()
    echo(repr(found))
    for row in found.verdict().to_dict("records"):
        echo(f"{row['kernel']}: {row['claim']}: {row['verdict']} ({row['reason'] or row['rule']})")
    if record:
        _show_preemptions(found)
    if page is not None:
        echo(f"\nopen {page}")
    _show_next(file, found)


def _levels(given: Iterable[str]) -> dict[str, Any]:
    """Return the levels of NAME=LEVEL,LEVEL: numbers, words, or True for what stands alone."""
    found: dict[str, Any] = {}
    for one in given:
        name, separator, text = one.partition("=")
        if not name or name in found or ("," in text and "" in text.split(",")):
            raise UserError(f"write each name once, as {_LEVELS}, and not {one!r}")
        if not separator:
            found[name] = True
            continue
        # A list of cores and cpu.max are one level.
        parts = [text] if name.endswith((".cpus", ".mems", ".max")) else text.split(",")
        levels = [int(part) if re.fullmatch("-?[0-9]{1,18}", part) else part for part in parts]
        found[name] = levels[0] if len(levels) == 1 else levels
    return found


def _show_translation(asked: Pathology, *, as_json: bool) -> None:
    rows = [{k: str(v) for k, v in vars(row).items()} for row in asked.translation]
    if as_json:
        print_json({"name": asked.name, "translation": rows})
    elif rows:
        print_table(rows, ("section", "option", "asked", "measured", "why"))
    else:
        echo("iolab measures the job unchanged")


def _show_preemptions(found: Comparison) -> None:
    """Print who preempts whom in the traced cells of one condition."""
    from iolab.measure import preemptions

    for name, trace in found.traces().items():
        table = preemptions(trace)
        echo(f"\n{name}: {len(table)} preemptions in the trace")
        pairs = table.groupby(["comm", "by_comm"], observed=True).size().nlargest(3)
        for row in pairs.rename("count").reset_index().to_dict("records"):
            echo(f"  {row['by_comm']} preempts {row['comm']}: {row['count']}")


def _write_question(path: Path, given: Mapping[str, Any]) -> Path:
    """Write a question as a file that every command takes."""
    from iolab_base.files import atomic_write

    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    atomic_write(path, f"import iolab\n\nasked = iolab.question(\n{arguments})\n")
    return path


def _write_page(page: Path, file: Path, found: Comparison, **options: Any) -> Path:
    """Execute the notebook of experiments on the answer, which is in the store."""
    from iolab.paths import NOTEBOOKS
    from iolab.sweeps.pages import Page, make_page

    parameters = {"pathology": str(file), "kernel": _kernels(found), **options}
    output = page.resolve().with_suffix(".ipynb")
    make_page(Page("the page", NOTEBOOKS / "experiment.ipynb", output, parameters))
    return output.with_suffix(".html")


def _kernels(found: Comparison) -> list[str]:
    """Return the kernels of the controls: another may be the treatment."""
    from iolab.stats.conditions import kernels_of

    return kernels_of(found.cells[found.cells["role"] == "control"])


def _show_next(file: Path, found: Comparison) -> None:
    """Suggest the next questions, as commands that can be pasted."""
    from iolab.pathology.base import TREATED_KERNEL

    named = shlex.quote(str(file))
    kernel = _kernels(found)[0]
    echo("\nnext:")
    # Between kernels no switch is the cause.
    if found.pathology.claims and found.pathology.treatment != TREATED_KERNEL:
        echo(f"  iolab why {named} --kernel {kernel}    # which switch of the kernel is the cause")
    echo(f"  iolab sweep --pathology {named} --kernel {kernel} --observe all    # every function")
