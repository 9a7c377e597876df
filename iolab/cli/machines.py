# SPDX-License-Identifier: MIT
"""Commands for the machine that measures, and for the kernels that virtual machines boot."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iolab.cli.options import PATH, complete_kernel, json_option
from iolab.cli.terminal import echo, note, print_json, print_table
from iolab.interrupts import interrupt_says
from iolab.logs import lines_shown
from iolab_base.errors import IolabError, UserError

if TYPE_CHECKING:
    from icountvm.kernels import Kernel

_INTERRUPTED = "interrupted; compiled files are kept, and the next build continues from there"


@click.command()
@click.option(
    "--target", default="local", show_default=True, help="local, or ssh://user@host[:port]."
)
@click.option("--show", is_flag=True, help="Only show what would be restored.")
@click.option("--wait", is_flag=True, help="Wait until a run in progress there has ended.")
@json_option
def restore(target: str, *, show: bool, wait: bool, as_json: bool) -> None:
    """Restore a real machine's settings.

    A killed run may leave settings changed; its journal lists them. iolab restores nothing while a
    run is in progress: it names the process, says when it began, and how to stop it.
    """
    from iolab.targets import real_target

    with lines_shown(note):
        lines = real_target(target).restore(show=show, wait=wait)
    if as_json:
        print_json({"target": target, "restored": not show, "changes": lines})
        return
    for line in lines:
        echo(line)
    if not lines:
        echo("there is nothing to restore")


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check what can run on this machine.

    It prints the install command for anything that is missing. It fetches what the cache lacks, as
    a sweep would, with a line on standard error for each step.
    """
    from iolab.doctor import examine

    findings = []
    with nullcontext() if as_json else lines_shown(note):
        for finding in examine():
            findings.append(finding)
            if not as_json:
                mark = "yes" if finding.good else ("NO " if finding.needed else "no ")
                echo(f"{mark}  {finding.what}: {finding.found}")
                if finding.fix:
                    echo(f"       fix: {finding.fix}")
    lacking = [finding.what for finding in findings if finding.needed and not finding.good]
    if as_json:
        print_json({"can_sweep": not lacking, "findings": findings})
    if lacking:
        raise IolabError(f"a sweep in virtual time cannot run here without: {', '.join(lacking)}")
    if not as_json:
        echo("a sweep in virtual time can run here")


@click.group(invoke_without_command=True)
@click.option(
    "--diff",
    nargs=2,
    metavar="A B",
    shell_complete=complete_kernel,
    help="Show how two kernels differ: scheduler, preemption model, configuration.",
)
@json_option
@click.pass_context
def kernels(context: click.Context, diff: tuple[str, str] | None, as_json: bool) -> None:
    """List, compare, add, build or fetch kernels.

    Without a command, iolab lists each kernel as cached, fetchable or unreachable, with its
    preemption model, HZ, and the scheduler that it reported when it was booted.
    """
    if context.invoked_subcommand is not None:
        if diff:
            raise UserError(f"--diff takes no command: omit {context.invoked_subcommand}")
        if as_json:
            raise UserError(f"put --json after {context.invoked_subcommand}")
        return
    if diff:
        _show_differences(*diff, as_json=as_json)
        return
    from icountvm.kernels import list_kernels
    from iolab.doctor import kernel_document, kernel_lines

    listed = list_kernels()
    if as_json:
        print_json([kernel_document(status) for status in listed])
        return
    for status in listed:
        for line in kernel_lines(status):
            echo(line)


def _show_differences(first: str, second: str, *, as_json: bool) -> None:
    from icountvm.kernels import kernel_facts
    from iolab.doctor import differences

    found = differences(first, second, {name: kernel_facts(name) for name in (first, second)})
    if as_json:
        print_json(found)
    elif found:
        rows = [{"": one.what, first: one.first, f"{second} ": one.second} for one in found]
        print_table(rows, heading=[])
    else:
        echo(f"{first} and {second} do not differ")


@kernels.command("add")
@click.argument("name")
@click.argument("files", type=PATH, nargs=-1, required=True)
@json_option
def kernels_add(name: str, files: tuple[Path, ...], as_json: bool) -> None:
    """Add kernel NAME from FILES.

    FILES are its packages (.deb, .rpm, .pkg.tar.zst), or its vmlinuz and its modules directory, or
    the directory of a build.
    """
    from icountvm.kernels import add_kernel

    with lines_shown(note):
        added = add_kernel(name, files)
    _show_cached([added], as_json=as_json)


@kernels.command("build")
@click.argument("tree", type=PATH)
@click.option("--name", help="Name of the kernel; by default its release and the commit.")
@click.option("--config", type=PATH, help="Kernel configuration to use instead of iolab's.")
@click.option("--commit", help="Commit to build; by default the git work tree as it is.")
@json_option
def kernels_build(
    tree: Path, name: str | None, config: Path | None, commit: str | None, as_json: bool
) -> None:
    """Build a kernel from the source TREE.

    TREE is a git work tree or bare repository, a tarball, a linux-source package, or a folder. It
    stays unchanged: iolab compiles files in its cache, and the next build compiles only what
    changed.

    Building a kernel runs the tree's code as you, without your environment: build only trees that
    you trust, or in a container.
    """
    from icountvm.kbuild.build import build_kernel

    with interrupt_says(_INTERRUPTED), lines_shown(note):
        built = build_kernel(tree, name=name, config=config, commit=commit)
    if as_json:
        print_json(
            {
                **_document(built.kernel),
                "built_from": built.title,
                "options": built.options,
                "options_absent": built.absent,
                "files": built.files,
                "seconds": round(built.seconds, 1),
            }
        )
        return
    if built.absent:
        echo(f"options that this tree lacks: {', '.join(built.absent)}")
    took = f"{built.files} files in {built.seconds:.0f} s, {built.options} options on"
    echo(f"kernel {built.kernel.name} is {built.kernel.release} ({built.title}); compiled {took}")


@kernels.command("fetch")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_kernel)
@json_option
def kernels_fetch(names: tuple[str, ...], as_json: bool) -> None:
    """Fetch kernels of the catalogue into the cache."""
    from icountvm.kernels import get_kernel

    with lines_shown(note):
        fetched = [get_kernel(name) for name in names]
    _show_cached(fetched, as_json=as_json)


def _document(kernel: Kernel) -> dict[str, str]:
    return {
        "name": kernel.name,
        "release": kernel.release,
        "source": kernel.source,
        "identity": kernel.identity,
    }


def _show_cached(kernels: list[Kernel], *, as_json: bool) -> None:
    if as_json:
        print_json([_document(kernel) for kernel in kernels])
        return
    for kernel in kernels:
        echo(f"kernel {kernel.name} is {kernel.release} ({kernel.source})")
