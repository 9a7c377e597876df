# SPDX-License-Identifier: MIT
"""Commands for the machine that measures and the kernels it boots: doctor, kernels, restore."""

from __future__ import annotations

from pathlib import Path

import click

from iolab.cli.terminal import echo
from iolab.errors import IolabError

__all__ = ["doctor", "kernels", "restore"]

_FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--target", default="local", show_default=True, help="local, or ssh://user@host[:port]."
)
@click.option("--show", is_flag=True, help="Only show what would be restored.")
def restore(target: str, show: bool) -> None:
    """Restore a real machine's settings.

    A run that was killed may have left some changed; its journal says which.
    """
    from iolab.targets.machines import real_target

    lines = real_target(target).restore(show=show)
    for line in lines:
        echo(line)
    if not lines:
        echo("nothing was left changed")


@click.group(invoke_without_command=True)
@click.pass_context
def kernels(context: click.Context) -> None:
    """List, add or fetch kernels.

    Without a command, each kernel is listed as cached, fetchable or unreachable, with what it said
    of its scheduler when it was booted.
    """
    if context.invoked_subcommand is not None:
        return
    from iolab.vm.kernels import list_kernels

    for status in list_kernels():
        facts = status.facts or {}
        scheduler = facts.get("scheduler", "scheduler not known before it was booted")
        parts = [status.release, status.source, scheduler] if not status.reason else [status.reason]
        line = f"{status.name:6}{status.state:13}" + ", ".join(p for p in parts if p)
        echo(line)


@kernels.command("add")
@click.argument("name")
@click.argument("files", type=_FILE, nargs=-1, required=True)
def kernels_add(name: str, files: tuple[Path, ...]) -> None:
    """Add kernel NAME from its .deb FILES, or from its vmlinuz and its modules directory."""
    from iolab.vm.kernels import add_kernel

    kernel = add_kernel(name, files)
    echo(f"kernel {kernel.name} is {kernel.release}")


@kernels.command("fetch")
@click.argument("names", nargs=-1, required=True)
def kernels_fetch(names: tuple[str, ...]) -> None:
    """Fetch kernels of the catalogue into the cache."""
    from iolab.vm.kernels import get_kernel

    for name in names:
        kernel = get_kernel(name, echo)
        echo(f"kernel {name} is {kernel.release} ({kernel.source})")


@click.command()
def doctor() -> None:
    """Check what can run on this machine.

    Of what is missing it names the command that installs it. What is not in the cache yet is
    fetched, as a sweep would.
    """
    from iolab.doctor import examine

    lacking = []
    for finding in examine():
        mark = "yes" if finding.good else ("NO " if finding.needed else "no ")
        echo(f"{mark}  {finding.what}: {finding.found}")
        if finding.fix:
            echo(f"       fix: {finding.fix}")
        if finding.needed and not finding.good:
            lacking.append(finding.what)
    if lacking:
        raise IolabError(f"a sweep in virtual time cannot run here without: {', '.join(lacking)}")
    echo("a sweep in virtual time can run here")
