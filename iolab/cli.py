# SPDX-License-Identifier: MIT
"""The command line. Its errors are one sentence each; exit code 2 is the user's mistake."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from iolab import shown
from iolab.errors import IolabError, UserError
from iolab.paths import REFERENCE, runs_dir
from iolab.sweep import pool
from iolab.sweep.sweep import Outcome, Request, default_jobs, run_sweep, start_page
from iolab.targets.place import MADE, Place

__all__ = ["main"]


_FOLDER = click.Path(path_type=Path)
_TARGETS = "vm, local (this machine itself), or ssh://user@host[:port]."

# What is printed is text: no words are taken for markup.
console = Console(highlight=False, markup=False, emoji=False)


def _say(words: str = "", style: str | None = None) -> None:
    console.print(shown.terminal(words), style=style, soft_wrap=True)


@click.group(help="A laboratory for Linux I/O that is slow because of the scheduler.")
def app() -> None:
    """Hold the commands."""


def _left(seconds: float | None) -> str:
    if seconds is None:
        return "time left: not known yet"
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes}:{rest:02d} left"


class _Teller:
    """Shows how far a sweep is: a bar on a terminal, now and then a line elsewhere."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("measuring", total=1, left="")
        self._last: tuple[int, int] = (-1, -1)
        self._running = False

    def log(self, line: str) -> None:
        _say(line)

    def on_progress(self, state: pool.Progress) -> None:
        if not state.cells:
            return
        text = f"{state.pages_done}/{state.pages} blocks, {state.cells_done}/{state.cells} cells"
        if console.is_terminal:
            if not self._running:
                self._bar.start()
                self._running = True
            self._bar.update(
                self._task,
                completed=state.cells_done,
                total=state.cells,
                description=text,
                left=_left(state.seconds_left),
            )
        elif (seen := (state.pages_done, state.cells_done * 10 // state.cells)) != self._last:
            self._last = seen
            self.log(f"{text}, {_left(state.seconds_left)}")

    def stop(self) -> None:
        self._bar.stop()


def _show(outcome: Outcome) -> None:
    _say()
    _say(outcome.pathology, style="bold")
    kernels = ", ".join(f"{name} ({source})" for name, source in outcome.kernels.items())
    _say(f"  measured on     {kernels}")
    for name, reason in outcome.unavailable.items():
        _say(f"  cannot run here {name}: {reason}")
    done = outcome.measured + outcome.kept
    _say(f"  blocks          {done} of {outcome.blocks} ({outcome.kept} were in the store)")
    _say(f"  cells           {outcome.cells}, of which {outcome.invalid} are not valid")
    for name, error in outcome.failed.items():
        _say(f"  failed          {name}: {error}")
    if outcome.page:
        _say(f"  page            {outcome.page}")
    if outcome.cells:
        _say(f"  figures         {outcome.folder / 'figures'}")
        _say(f"  tables          {outcome.folder / 'cells.parquet'}")
    for row in outcome.verdicts:
        _say(f"  {row['kernel']:16}mechanism {row['mechanism']}, magnitude {row['magnitude']}")


def _place(options: dict[str, Any]) -> Place:
    if options["directory"] and options["destroy"]:
        raise UserError("--directory and --destroy are two places to measure on: name one")
    if options["serial"] is not None and not options["destroy"]:
        raise UserError("--serial is of the disk that --destroy names")
    made = options["make"]
    if made and options["destroy"]:
        raise UserError("--make makes what is measured on, --destroy names it: choose one")
    if made == "loop" and not options["directory"]:
        raise UserError("--make loop needs --directory: the folder of the file behind the device")
    if made in ("zram", "brd") and options["directory"]:
        raise UserError(f"--make {made} is in memory: leave --directory away")
    directory = options["directory"]
    if directory and options["target"] == "local":
        directory = str(Path(directory).resolve())
    if directory and not directory.startswith("/"):
        raise UserError(f"--directory on another machine is a whole path, not {directory!r}")
    return Place(directory, options["destroy"], options["serial"], made)


@app.command()
@click.option("--profile", default="quick", show_default=True, help="smoke, quick or full.")
@click.option("--pathology", multiple=True, help="Instead of all; again for several.")
@click.option("--kernel", multiple=True, help="Instead of the profile's; again for several.")
@click.option("--set", "settings", multiple=True, help="FACTOR=LEVEL[,LEVEL...]; again for more.")
@click.option("--record", multiple=True, help="FACTOR=LEVEL[,LEVEL...] to trace; again for more.")
@click.option("--target", default="vm", show_default=True, help=_TARGETS)
@click.option("--directory", help="Real machines: measure on files made in this folder.")
@click.option("--destroy", metavar="/dev/...", help="Real machines: measure on this disk.")
@click.option("--serial", help="The disk's serial number: what is on it may be lost.")
@click.option("--make", type=click.Choice(MADE), help="Real machines: measure on such a device.")
@click.option("--clock", help="virtual or host; by default virtual in virtual machines.")
@click.option("--jobs", type=int, help="Virtual machines side by side.")
@click.option("--root", type=_FOLDER, default=runs_dir, help="Where results are kept.")
def sweep(**options: Any) -> None:
    """Measure what the store lacks, then make tables, pages and figures."""
    teller = _Teller()
    virtual = options["target"] == "vm"
    most = default_jobs() if virtual else 1
    request = Request(
        profile=options["profile"],
        pathologies=options["pathology"],
        kernels=options["kernel"],
        settings=options["settings"],
        recorded=options["record"],
        clock=options["clock"] or ("virtual" if virtual else "host"),
        jobs=most if options["jobs"] is None else options["jobs"],
        root=options["root"].resolve(),
        target=options["target"],
        place=_place(options),
    )
    try:
        outcomes = run_sweep(request, teller.log, teller.on_progress)
        first = start_page(request, outcomes)
    finally:
        teller.stop()
    for outcome in outcomes:
        _show(outcome)
    if first:
        _say(f"\nopen {first}")
    if any(o.failed for o in outcomes):
        raise IolabError("some of it failed; what was measured is kept, and the next sweep goes on")


@app.command()
@click.option(
    "--target", default="local", show_default=True, help="local, or ssh://user@host[:port]."
)
@click.option("--show", is_flag=True, help="Only say what would be put back.")
def restore(target: str, show: bool) -> None:
    """Put back what a run that was killed left changed on a real machine."""
    from iolab.targets.machines import real_target  # noqa: PLC0415

    lines = real_target(target).restore(show=show)
    for line in lines:
        _say(line)
    if not lines:
        _say("nothing was left changed")


@app.group(invoke_without_command=True)
@click.pass_context
def kernels(context: click.Context) -> None:
    """List the kernels: cached, fetchable or out of reach, and what each said of itself."""
    if context.invoked_subcommand is not None:
        return
    from iolab.vm.kernels import list_kernels  # noqa: PLC0415 - asks the archive

    for status in list_kernels():
        facts = status.facts or {}
        scheduler = facts.get("scheduler", "scheduler not known before it was booted")
        parts = [status.release, status.source, scheduler] if not status.reason else [status.reason]
        line = f"{status.name:6}{status.state:13}" + ", ".join(p for p in parts if p)
        _say(line)


@kernels.command("add")
@click.argument("name")
@click.argument("files", type=_FOLDER, nargs=-1, required=True)
def kernels_add(name: str, files: tuple[Path, ...]) -> None:
    """Add kernel NAME from its .deb FILES, or from its vmlinuz and its modules directory."""
    from iolab.vm.kernels import add_kernel  # noqa: PLC0415

    kernel = add_kernel(name, files)
    _say(f"kernel {kernel.name} is {kernel.release}")


@kernels.command("fetch")
@click.argument("names", nargs=-1, required=True)
def kernels_fetch(names: tuple[str, ...]) -> None:
    """Fetch kernels of the catalogue into the cache."""
    from iolab.vm.kernels import get_kernel  # noqa: PLC0415

    for name in names:
        kernel = get_kernel(name, _say)
        _say(f"kernel {name} is {kernel.release} ({kernel.source})")


@app.command()
def doctor() -> None:
    """Say what can run here, what is missing, and the command that mends it."""
    from iolab.doctor import examine  # noqa: PLC0415 - fetches and boots

    lacking = []
    for finding in examine():
        mark = "yes" if finding.good else ("NO " if finding.needed else "no ")
        _say(f"{mark}  {finding.what}: {finding.found}")
        if finding.fix:
            _say(f"       fix: {finding.fix}")
        if finding.needed and not finding.good:
            lacking.append(finding.what)
    if lacking:
        raise IolabError(f"a sweep in virtual time cannot run here without: {', '.join(lacking)}")
    _say("a sweep in virtual time can run here")


@app.command()
@click.argument("folder", type=_FOLDER)
@click.option("--canonical", is_flag=True, help="The same bytes for the same measurement.")
@click.option("--pyperf", type=_FOLDER, help="Archives for pyperf, one a kernel, to this folder.")
@click.option("--root", type=_FOLDER, default=runs_dir, help="Where results are kept.")
def export(folder: Path, canonical: bool, pyperf: Path | None, root: Path) -> None:
    """Write the cells of a sweep's FOLDER to standard output: CSV, or a JSON line each."""
    from iolab.store.dataset import load  # noqa: PLC0415
    from iolab.store.raw import RawStore  # noqa: PLC0415
    from iolab.store.tidy import canonical_lines  # noqa: PLC0415

    if pyperf is not None:
        from iolab.report.pyperf_export import write_archives  # noqa: PLC0415 - needs pyperf

        if canonical:
            raise UserError("--canonical and --pyperf are two forms of export: name one")
        for path in write_archives(load(folder), pyperf):
            _say(str(path))
        return
    if not canonical:
        sys.stdout.write(load(folder).cells.to_csv(index=False))
        return
    for line in canonical_lines(RawStore(root.resolve()), folder):
        sys.stdout.write(line + "\n")


@app.command()
@click.argument("folders", type=_FOLDER, nargs=-1)
@click.option("--claims", is_flag=True, help="Each claim with its estimate, rule and reason.")
def verdicts(folders: tuple[Path, ...], claims: bool) -> None:
    """Say what holds on which kernel, from sweeps' FOLDERS or the reference data."""
    import pandas as pd  # noqa: PLC0415

    from iolab.stats.verdicts import verdict_summary, verdict_table, verdict_text  # noqa: PLC0415
    from iolab.store.dataset import load, result_folders  # noqa: PLC0415

    found = [f for folder in folders or (REFERENCE,) for f in result_folders(folder)]
    judged = pd.concat([verdict_table(load(f)) for f in found], ignore_index=True)
    table = Table(box=None, pad_edge=False)
    if claims:
        judged["result"] = [verdict_text(row) for row in judged.to_dict("records")]
        names = ["pathology", "kernel", "claim", "kind", "verdict", "result", "rule", "published"]
    else:
        judged = verdict_summary(judged)
        names = list(judged.columns)
    for name in names:
        table.add_column(name, overflow="fold")
    for row in judged[names].to_dict("records"):
        words = ("" if pd.isna(value) else str(value) for value in row.values())
        table.add_row(*map(shown.terminal, words))
    console.print(table)


@app.command()
@click.argument("file", type=_FOLDER)
@click.option("--perfetto", type=_FOLDER, help="Write it for Perfetto's UI, as this file.")
@click.option("--parquet", type=_FOLDER, help="Write it as tables, one an event, to this folder.")
def trace(file: Path, perfetto: Path | None, parquet: Path | None) -> None:
    """Say what is in a trace.dat FILE, and export it."""
    from iolab.trace import read  # noqa: PLC0415
    from iolab.trace.export.parquet import write_parquet  # noqa: PLC0415
    from iolab.trace.export.perfetto import write_perfetto  # noqa: PLC0415

    found = read(file)
    info = found.info
    _say(f"version {info.version}, {info.compression}, {info.cpus} CPUs, {info.clock} clock")
    for name, count in sorted(found.events.items()):
        if count:
            _say(f"{count:10} {name}")
    for loss in found.losses.to_dict("records"):
        _say(f"lost: {loss}")
    if perfetto is not None:
        write_perfetto(found, perfetto)
    if parquet is not None:
        write_parquet(found, parquet)


def _fail(message: str, code: int) -> int:
    print(shown.terminal(f"iolab: {message}"), file=sys.stderr)
    return code


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = app.main(standalone_mode=False) or 0
    except IolabError as error:
        code = _fail(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        print(shown.terminal(error.format_message()), file=sys.stderr)
        code = error.exit_code
    except click.UsageError as error:
        code = _fail(re.sub(r"\s+", " ", error.format_message()), UserError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = _fail("interrupted; what was measured is kept, and the next sweep goes on", 130)
    except OSError as error:
        code = _fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)
    sys.exit(code)
