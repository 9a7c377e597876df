# SPDX-License-Identifier: MIT
"""Commands for the machine that measures and the kernels it boots: doctor, kernels, restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from iolab.cli.completion import complete_kernel
from iolab.cli.documents import json_option, print_json
from iolab.cli.terminal import echo, note
from iolab.errors import IolabError, UserError

if TYPE_CHECKING:
    from iolab.doctor import Finding
    from iolab.vm.kernels import Kernel

__all__ = ["doctor", "kernels", "restore"]

_FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--target", default="local", show_default=True, help="local, or ssh://user@host[:port]."
)
@click.option("--show", is_flag=True, help="Only show what would be restored.")
@click.option("--wait", is_flag=True, help="Wait for the end of a run that is at work there.")
@json_option
def restore(target: str, *, show: bool, wait: bool, as_json: bool) -> None:
    """Restore a real machine's settings.

    A run that was killed may have left some changed; its journal says which. Beside a run at work
    nothing is restored: one sentence says which process that is, since when, and how to stop it.
    """
    from iolab.targets.machines import real_target

    lines = real_target(target).restore(show=show, on_wait=note if wait else None)
    if as_json:
        print_json({"target": target, "restored": not show, "changes": lines})
        return
    for line in lines:
        echo(line)
    if not lines:
        echo("nothing was left changed")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def kernels(context: click.Context, as_json: bool) -> None:
    """List, add or fetch kernels.

    Without a command, each kernel is listed as cached, fetchable or unreachable, with what it said
    of its scheduler when it was booted.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise UserError(f"--json goes behind {context.invoked_subcommand}")
        return
    from iolab.vm.kernels import list_kernels

    listed = list_kernels(note)
    if as_json:
        print_json(listed)
        return
    for status in listed:
        facts = status.facts or {}
        scheduler = facts.get("scheduler", "scheduler not known before it was booted")
        parts = [status.release, status.source, scheduler] if not status.reason else [status.reason]
        line = f"{status.name:6}{status.state:13}" + ", ".join(p for p in parts if p)
        echo(line)


@kernels.command("add")
@click.argument("name")
@click.argument("files", type=_FILE, nargs=-1, required=True)
@json_option
def kernels_add(name: str, files: tuple[Path, ...], as_json: bool) -> None:
    """Add kernel NAME from its .deb FILES, or from its vmlinuz and its modules directory."""
    from iolab.vm.kernels import add_kernel

    _show_cached([add_kernel(name, files, note)], as_json=as_json)


@kernels.command("fetch")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_kernel)
@json_option
def kernels_fetch(names: tuple[str, ...], as_json: bool) -> None:
    """Fetch kernels of the catalogue into the cache."""
    from iolab.vm.kernels import get_kernel

    _show_cached([get_kernel(name, note) for name in names], as_json=as_json)


def _show_cached(kernels: list[Kernel], *, as_json: bool) -> None:
    if as_json:
        names = ("name", "release", "source", "identity")
        print_json([{name: getattr(kernel, name) for name in names} for kernel in kernels])
        return
    for kernel in kernels:
        echo(f"kernel {kernel.name} is {kernel.release} ({kernel.source})")


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check what can run on this machine.

    Of what is missing it names the command that installs it. What is not in the cache yet is
    fetched, as a sweep would; each such step is a line on standard error.
    """
    from iolab.doctor import examine

    findings = []
    for finding in examine(_silence if as_json else note):
        findings.append(finding)
        if not as_json:
            _show_finding(finding)
    lacking = [finding.what for finding in findings if finding.needed and not finding.good]
    if as_json:
        print_json({"can_sweep": not lacking, "findings": findings})
    if lacking:
        raise IolabError(f"a sweep in virtual time cannot run here without: {', '.join(lacking)}")
    if not as_json:
        echo("a sweep in virtual time can run here")


def _silence(line: str) -> None:
    """Show no progress."""


def _show_finding(finding: Finding) -> None:
    mark = "yes" if finding.good else ("NO " if finding.needed else "no ")
    echo(f"{mark}  {finding.what}: {finding.found}")
    if finding.fix:
        echo(f"       fix: {finding.fix}")
